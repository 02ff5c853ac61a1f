"""Clients of the other services and of other executors."""
