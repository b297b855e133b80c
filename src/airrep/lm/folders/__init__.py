"""Folders of target LMs: whole, adapters on a base, or a trainer's checkpoints.

forms  Find the files of a target LM: weights, adapters, checkpoints; which LM is meant.
gguf   GGUF files as target LMs, read once into the cache; where matrices lie.
"""
