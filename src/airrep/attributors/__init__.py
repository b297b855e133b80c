"""Room attributors."""
