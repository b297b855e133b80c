"""Linear models learnt from labels: datamodels and stacks.

datamodels  Fit datamodels: regress losses on who was in the subset.
regression  Regularised linear regression of many targets on one design.
stack       Learn a sum of channels from labels: each one's pool and temperature, and their weights.
weights     Group scores of channels on labelled instances; weights of channels by Eq. 8.
"""
