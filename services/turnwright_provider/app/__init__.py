"""Use cases: the order of steps."""
