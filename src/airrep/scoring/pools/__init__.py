"""Pools that stream over blocks: counting gains, order-k influence, top-K means, weighted sums.

gains   Group scores of the counting language model, streamed over blocks of rows.
orders  Order-k group influence of removing a group, streamed over blocks.
sums    Sums, means and diminishing means of scores, by the sums of groups' features.
tops    Means of each group's highest scores, streamed over blocks.
"""
