"""Room scoring."""
