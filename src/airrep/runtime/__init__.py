"""Room runtime."""
