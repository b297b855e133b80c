"""Linear models learnt from labels: datamodels and stacks.

datamodels  Fit datamodels: regress losses on who was in the subset.
regression  Regularised linear regression of many targets on one design.
stack       Learn a stack: weights for several methods' scores, from labels.
weights     Deviations and weights of a stack's members, from labels.
"""
