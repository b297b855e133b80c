"""Room training."""
