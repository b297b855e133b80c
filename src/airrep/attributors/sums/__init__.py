"""A method that adds up others: channels.

channels   Attribution by a sum of channels, each pooled by itself.
reference  Weights of a sum's channels: by random groups, and by candidates of dear channels.
"""
