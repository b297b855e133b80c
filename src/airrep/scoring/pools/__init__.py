"""Pools that stream over blocks: counting gains, order-k influence, weighted sums.

gains   Group scores of the counting language model, streamed over blocks of rows.
orders  Order-k group influence of removing a group, streamed over blocks.
"""
