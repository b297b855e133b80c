"""Results of queries to an index, with method, pool, sign and units.

citations  Citations: training examples as records that others can look up, and as JSON-LD.
hits       Hits: training examples in a ranking, and the verdict on the answer.
kinds      Kinds of index results: top examples, group scores, what-ifs.
result     The base of results and answers: rows and tables, JSON, where they come from.
"""
