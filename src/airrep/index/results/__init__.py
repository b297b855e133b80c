"""Results of asking an index: written, read, with method, pool, sign, units.

citations  Citations: training examples as records that others can look up, and as JSON-LD.
hits       Hits: training examples in a ranking, and the verdict on the answer.
kinds      Kinds of results of asking an index: top examples, group scores, what-ifs.
result     The base of results and answers: rows and tables, JSON, where they come from.
"""
