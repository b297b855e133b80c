"""Linear models learnt from labels: datamodels and stacks.

datamodels   Fit datamodels: regress losses on who was in the subset.
map_weights  Weights of groups of linear maps in a gradient method's scores, learnt from labels.
ranking_fit  Weights of group scores that rank labels best, by Eq. 8.
regression   Regularised linear regression of many targets on one design.
stack        Learn a sum of channels from labels: pools, temperatures, weights.
weights      Group scores of channels on labelled instances; weights of channels by Eq. 8.
"""
