"""Linear models learnt from labels: datamodels and stacks.

datamodels  Datamodels: regressions of losses on the members of subsets.
regression  Regularised linear regression of many targets on one design.
stack       Stacks: weighted sums of several methods' scores, learnt from labels.
weights     Deviations and weights of a stack's members, from labels.
"""
