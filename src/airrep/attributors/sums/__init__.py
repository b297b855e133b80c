"""A method that adds up the scores of several others: channels.

channels   Attribution by a weighted sum of channels, each with its own pool.
reference  Weights of a sum's channels: by random groups, and by candidates of dear channels.
"""
