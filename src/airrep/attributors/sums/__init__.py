"""A method that adds up others: channels.

channels   Attribution by a sum of channels, each pooled by itself.
pairs      An answer and a better one, whose channels must weigh alike to be subtracted.
reference  Random groups of the corpus, which tell the size of channels' scores.
"""
