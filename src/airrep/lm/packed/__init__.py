"""Weights of LMs beyond plain matrices, held as they are in their files: quantised ones, fused experts.

blocks    Matrices of a GGUF file, held as its blocks.
experts   Fused experts of a mixture, run one by one while they are read.
networks  The network of an LM around weights that are held packed.
tensors   Matrices of quantised safetensors, held as their formats store them.
"""
