"""Pick training data from an index."""
