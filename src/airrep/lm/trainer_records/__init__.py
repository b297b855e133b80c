"""Records of training by transformers or trl, and the settings that trainers leave.

callback  A callback of transformers' Trainer that records steps and keeps checkpoints.
record    The record of a training: losses and rows of each step, and jumps.
training  Read settings of fine-tunes from trainers' files, without running pickled code.
"""
