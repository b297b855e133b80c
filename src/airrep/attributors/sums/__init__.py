"""A method that adds up others: channels.

candidates  Two stages: cheap channels pick candidates, a dear channel scores these alone.
channels    Attribution by a sum of channels, each pooled by itself.
relative    Relative weights of channels: their scores of random groups, on a sample of the training examples.
"""
