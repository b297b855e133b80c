"""Blocks of features to scores of examples and groups; pools.

blocks        Stored features in blocks, read piece by piece.
group_orders  Order-k group influence of removing a group, streamed over blocks.
group_scores  Group scores, streamed over blocks of rows.
group_tops    Means of each group's highest scores, streamed over blocks.
groups        Groups of training examples, as row numbers.
min_rank      Selection of training data: by best rank, or drawn by weight.
pooling       Group scores from the scores of members.
products      Products of queries with rows: exact, and approximate with error bounds.
scores        All influence scores over stored features, streamed.
topk          Exact top-k by a bounded scan and re-ranking.
"""
