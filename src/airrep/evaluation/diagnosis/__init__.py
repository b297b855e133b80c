"""Findings that tell why an LDS is low.

diagnosis   Diagnose labels and indexes; write and read the findings.
of_indexes  Findings on an index and its scores: why its LDS is low.
of_labels   Findings on labels alone: why an LDS is low.
"""
