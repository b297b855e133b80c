"""Train the encoder beside channels whose group scores are given.

given    Group scores of the given channels, each in units of its deviation.
mixture  The sum of given group scores and the encoder's, with weights that learn.
recipe   Channels to train beside, read; the recipe of the sum, written.
weights  Weights of given channels, and the encoder's share among them.
"""
