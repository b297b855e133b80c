"""Score examples, and pool the scores of groups, over blocks of features.

blocks        Stored features in blocks, read piece by piece.
columns       Sparse features by column, and products with some of the columns.
group_gains   Group scores of the counting language model, streamed over blocks of rows.
group_orders  Order-k group influence of removing a group, streamed over blocks.
group_scores  Pooled group scores, streamed over blocks of rows.
group_tops    Means of each group's highest scores, streamed over blocks.
groups        Groups of training examples, as row numbers.
min_rank      Min-rank over blocks of scores, and draws by weight.
pooling       Pools in plain form: sum, mean, attention, top-K of members' scores.
products      Products of queries with rows: exact, and approximate with error bounds.
scores        All influence scores over stored features, streamed.
topk          Exact top-k by a bounded scan and re-ranking.
"""
