"""Methods that add up others: channels, and stacks of earlier versions.

channels   Attribution by a sum of channels, each pooled by itself.
pairs      An answer and a better one, whose channels must weigh alike to be subtracted.
reference  Random groups of the corpus, which tell the size of channels' scores.
stack      Attribution by stacks of earlier versions: one pool over summed scores.
"""
