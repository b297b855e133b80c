"""Naive float64 oracles, written from the paper alone.

They share no code with airrep and import only NumPy and the standard library; those of training and of language
models import torch and transformers, whose plain use is what they hold airrep against. Plain loops, no tricks: a
reader should be able to hold each one against its equation.
"""
