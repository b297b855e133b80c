"""Records of training by transformers or trl, and the settings that trainers leave.

callback  A callback of transformers' Trainer that records steps and keeps checkpoints.
names     Names that trainers have for settings, and their defaults, as transformers' names.
record    The record of a training: losses and rows of each step, and jumps.
rows      Which rows of the data each step of a trainer saw.
training  Settings of fine-tunes, read from a trainer's folder or config file.
written   Arguments, state and adapters that trainers write; a pickle runs nothing.
"""
