"""Room encoder."""
