"""Results of asking an index: written, read, with method, pool, sign, units.

citations  Citations: training examples as records that others can look up, and as JSON-LD.
frames     Results as rows of plain values, data frames and short tables for notebooks.
hits       Hits: training examples in a ranking, and the verdict on it.
kinds      Kinds of results of asking an index: top examples, group scores, what-ifs.
made       The data and models that an index was made of, from its manifest.
result     The base of results and answers: a class writes and reads its JSON.
summary    Examples, sources, labels and openings that rankings of several queries share.
"""
