"""Use cases: the order of steps of one assembly."""
