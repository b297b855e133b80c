"""Linear models learnt from labels: datamodels and stacks.

datamodels  Datamodels: regress losses on who was in the subset.
regression  Regularised linear regression of many targets on one design.
stack       Learn from labels how to add up several methods' scores.
weights     Deviations and weights of a stack's members, from labels.
"""
