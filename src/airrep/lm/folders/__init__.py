"""Folders of target LMs: whole, adapters on a base, or a trainer's checkpoints.

blocks     Where a GGUF file has the matrices of an LM, by transformers' names.
forms      Find the files of a target LM: weights, adapters, checkpoints; which LM is meant.
gguf       GGUF files as target LMs, read once into a folder of the cache.
quantised  Quantised weights in safetensors: which forms are read.
"""
