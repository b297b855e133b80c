"""Results of asking an index: written, read, with method, pool, sign, units.

forms       JSON forms of results, checked when they are read.
hits        Hits: training examples in a ranking for a query.
kinds       Kinds of results of asking an index: top examples, group scores, what-ifs.
provenance  Provenance of scores: method, pool, units, sign; rankings and removals in words.
reading     Read results that were written as artifacts.
summary     Examples, sources, labels and openings that rankings of several queries share.
verdict     Verdicts: whether anything in the data stands out as what taught an answer.
"""
