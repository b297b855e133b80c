"""Records of training by transformers or trl.

callback  A callback of transformers' Trainer that records steps and keeps checkpoints.
record    The record of a training: losses and rows of each step, and jumps.
rows      Which rows of the data each step of a trainer saw.
"""
