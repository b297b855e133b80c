"""Weights of LMs held as their files have them: quantised ones, fused experts.

experts   Fused experts of a mixture, run one by one while they are read.
networks  The network of an LM around weights held as quantised formats store them.
"""
