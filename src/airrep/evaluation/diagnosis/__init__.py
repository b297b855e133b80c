"""Why an LDS is low: findings on labels and indexes.

diagnosis   Why an LDS is low: findings on labels and indexes.
findings    Findings, and the statistics of labelled instances they come from.
of_indexes  What an index and its scores can tell about a low LDS.
of_labels   What labels alone can tell about a low LDS.
"""
