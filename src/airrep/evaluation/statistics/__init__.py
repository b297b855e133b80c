"""Correlations, means and intervals; the noise in labels.

bootstrap  The bootstrap over queries and subsets behind LDS intervals.
labels     Labels from losses (Eq. 7); signal, noise, overlap, common factors of losses.
means      Means over queries with bootstrap intervals, and intervals of ratios.
metrics    Spearman correlation and LDS, alone and in pairs.
"""
