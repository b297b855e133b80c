"""Correlations, means and intervals; the noise in labels.

bootstrap  Rank correlations over resampled queries and subsets.
ceilings   The noise ceiling: what noisy labels leave to be reached.
labels     Signal, noise, overlap and common factors of losses over subsets.
means      Means over queries with bootstrap intervals, and intervals of ratios.
metrics    Spearman's correlation, and LDS with its intervals.
"""
