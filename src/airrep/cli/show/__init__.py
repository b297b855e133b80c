"""Room show."""
