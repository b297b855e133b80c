"""A method that adds up others: channels.

channels   Attribution by a sum of channels, each pooled by itself.
reference  Weights of channels of a sum: by random groups, and by candidates of dear channels.
"""
