"""Correlations, means and intervals; the noise in labels.

bootstrap    The bootstrap over queries and subsets behind LDS intervals.
ceilings     The noise ceiling: the LDS that a perfect predictor would reach.
labels       Signal, noise, overlap and common factors of losses over subsets.
means        Means over queries with bootstrap intervals, and intervals of ratios.
metrics      Spearman correlation and LDS, alone and in pairs.
moved        How far fine-tunes moved the losses of queries, and whether that is hardly.
rank_labels  Labels from losses, by which subsets are ranked (Eq. 7).
"""
