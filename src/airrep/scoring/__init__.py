"""Score examples, and pool the scores of groups, over blocks of features.

asked         Prepared queries that score the rows of an index: scores, bounds, group scores, sums.
blocks        Stored features in blocks, read piece by piece.
columns       Sparse features by column, and products with some of the columns.
contrast      Contrasts: scores for an answer against scores for a better answer.
devices       Where dense products run: numpy, or torch on a GPU.
gains         Group scores of the counting language model, streamed over blocks of rows.
group_scores  Pooled group scores, streamed over blocks of rows.
groups        Groups of training examples, as row numbers.
orders        Order-k influence of removing a group, streamed over blocks.
pooling       Pools of members' scores, and their plain definitions: sum, mean, attention.
products      Products of queries with stored features, exact and approximate with error bounds.
topk          Exact top-k by a bounded scan and re-ranking; best ranks over several queries.
"""
