"""Records of training by transformers or trl, and the settings that trainers leave.

callback  A callback of transformers' Trainer that records steps and keeps checkpoints.
names     The names that trainers have for settings of a training, and their defaults, as transformers' names.
record    The record of a training: losses and rows of each step, and jumps.
rows      Which rows of the data each step of a trainer saw.
training  Settings of fine-tunes, read from a trainer's folder or config file.
written   What trainers write down: arguments (a pickle too, of which nothing runs), state and adapters.
"""
