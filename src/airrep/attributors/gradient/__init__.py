"""Room gradient."""
