"""Linear models learnt from labels: datamodels and recipes.

datamodels  Fit datamodels: regress losses on which examples were in the subset.
recipe      Learn a recipe from labels: pools, temperatures and weights of channels.
weights     Group scores of channels on labelled instances; their weights by Eq. 8.
"""
