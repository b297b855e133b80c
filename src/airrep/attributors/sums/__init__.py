"""Methods that add up others: channels, and stacks of earlier versions.

channels   Attribution by a sum of channels, each pooled by itself.
reference  Random groups of a training corpus, which tell the size of each channel's group scores for a query.
stack      Attribution by stacks of earlier versions: a weighted sum of several methods' scores under one pool.
"""
