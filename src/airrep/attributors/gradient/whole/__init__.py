"""Whole gradients with EK-FAC curvature, as they pass or as factors.

ekfac    Attribution by influence functions with EK-FAC curvature, without projection, refined on request.
factors  EK-FAC: Kronecker factors of whole gradients' curvature, with corrected eigenvalues.
"""
