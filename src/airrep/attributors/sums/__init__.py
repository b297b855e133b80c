"""A method that adds up the scores of several others: channels.

candidates  Two stages: cheap channels pick candidates, an expensive channel scores only them.
channels    Attribution by a weighted sum of channels, each with its own pool.
relative    Relative weights of channels, from their scores of random groups of training examples.
"""
