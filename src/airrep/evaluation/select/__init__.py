"""Room select."""
