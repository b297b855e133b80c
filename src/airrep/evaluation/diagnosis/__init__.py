"""Why an LDS is low: findings on labels and indexes.

diagnosis   Why an LDS is low: findings on labels and indexes.
findings    Findings, and the statistics of labelled instances they come from.
of_indexes  Findings on an index and its scores.
of_labels   Findings on labels alone.
"""
