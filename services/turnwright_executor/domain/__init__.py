"""Rules of the executor: pure functions and tables."""
