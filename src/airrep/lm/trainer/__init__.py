"""Records of training by transformers or trl, and the settings that trainers leave.

callback  A callback of transformers' Trainer that records steps and keeps checkpoints.
record    The record of a training: losses and rows of each step, and jumps.
training  Settings of fine-tunes, read from a trainer's folder or config file.
written   Arguments, state and adapters that trainers write; a pickle runs nothing.
"""
