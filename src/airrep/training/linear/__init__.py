"""Room linear."""
