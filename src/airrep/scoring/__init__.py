"""Score examples, and pool the scores of groups, over blocks of features.

asked         Queries asked of the rows of an index: scores, bounds, group scores, sums.
blocks        Stored features in blocks, read piece by piece.
columns       Sparse features by column, and products with some of the columns.
contrast      Contrasts of two scores of a row.
devices       Where dense products run: numpy, or torch on a card.
gains         Group scores of the counting language model, streamed over blocks of rows.
group_scores  Pooled group scores, streamed over blocks of rows.
groups        Groups of training examples, as row numbers.
orders        Order-k group influence of removing a group, streamed over blocks.
pooling       Pools in plain form: sum, mean, attention of members' scores.
products      Products of queries with stored features, exact and approximate with error bounds.
topk          Exact top-k by a bounded scan and re-ranking; the best rank over several queries.
"""
