"""Whole gradients with EK-FAC curvature, as they pass or as factors.

ekfac    Attribution by influence functions with EK-FAC curvature, without projection.
factors  EK-FAC: Kronecker factors of whole gradients' curvature, with corrected eigenvalues.
refine   EK-FAC's inverse products refined by conjugate gradients on the Gauss-Newton matrix of a sample.
"""
