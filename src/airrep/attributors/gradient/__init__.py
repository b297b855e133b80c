"""Methods that read gradients of the LM: hooks, projections, curvature.

base        The base class of gradient methods, and TracIn.
curvature   Curvature of gradients: Kronecker factors, principal spaces, damping; lengths of gradients.
ekfac       Attribution by influence functions with EK-FAC curvature, without projection, refined on request.
factors     EK-FAC: Kronecker factors of whole gradients' curvature, with corrected eigenvalues.
influence   Attribution by the influence function with the exact Hessian of the training loss.
logra       Attribution by whitened projected gradients: LoGra.
projection  Smaller gradients: projection on both sides, covariances, count sketches.
reading     Per-example gradients of a causal LM, without a pass per example.
run/        Methods that read a recorded fine-tune: its end, or all of its steps.
store       Gradients, scores and learnt arrays on disk, found by text or fingerprint.
tokens      Products of gradients, split over pairs of tokens.
trak        Attribution by gradients and their raw Fisher matrix: TRAK, DsDm.
"""
