"""Room planning."""
