"""Room lm."""
