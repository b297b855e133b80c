"""LMs whose weights are quantised: held as they are in their files.

blocks    Matrices of a GGUF file, held as its blocks.
networks  The network of an LM around weights that are held packed.
"""
