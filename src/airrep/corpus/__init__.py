"""Room corpus."""
