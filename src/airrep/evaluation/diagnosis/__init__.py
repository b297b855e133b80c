"""Room diagnosis."""
