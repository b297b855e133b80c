"""Whole gradients with EK-FAC curvature, as they pass or as factors.

ekfac    Attribution by influence functions with EK-FAC curvature, without projection.
factors  EK-FAC: Kronecker factors of whole gradients' curvature, with corrected eigenvalues.
scores   Scores of whole gradients kept on disk, by lists of queries.
tokens   Products of whole gradients token by token, with EK-FAC curvature between them.
"""
