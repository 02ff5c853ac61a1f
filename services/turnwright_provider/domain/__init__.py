"""Rules: pure functions and tables."""
