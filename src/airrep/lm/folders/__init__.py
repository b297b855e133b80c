"""Folders of target LMs: whole, adapters on a base, or a trainer's checkpoints.

forms  Find the files of a target LM: weights, adapters, checkpoints; which LM is meant.
gguf   Read GGUF files as target LMs, once, into the cache.
"""
