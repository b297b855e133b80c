"""A method that adds up others: channels.

channels   Attribution by a sum of channels, each pooled by itself.
reference  What weighs channels of a sum: random groups, and candidates of dear channels.
"""
