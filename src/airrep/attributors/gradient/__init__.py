"""Methods that read gradients of the LM: hooks, projections, curvature.

base        The base class of gradient methods, and TracIn.
curvature   Curvature of gradients: Kronecker factors (LoGra), raw Fisher (TRAK, DsDm).
ekfac       Attribution by influence functions with EK-FAC curvature, without projection.
factors     EK-FAC: Kronecker factors of whole gradients' curvature, with corrected eigenvalues.
hessian     The Hessian of an LM's training loss, and how to solve with it.
influence   Attribution by the influence function with the exact Hessian.
kept        Gradients of training examples that an index keeps, as factors of a low rank.
less        Attribution by gradients of low-rank adapters: LESS.
low_rank    Matrices as factors of a low rank.
logra       Attribution by whitened projected gradients: LoGra.
projection  Gradients made small: two-sided projection, covariances, signed sums.
reading     Per-example gradients of a causal LM, without a pass per example.
store       Gradients kept on disk, found again by text.
trak        Attribution by gradients and their raw Fisher matrix: TRAK, DsDm.
"""
