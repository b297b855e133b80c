"""A method that adds up others: channels.

channels   Attribution by a sum of channels, each pooled by itself.
reference  Random groups of the corpus, which tell the size of channels' scores.
"""
