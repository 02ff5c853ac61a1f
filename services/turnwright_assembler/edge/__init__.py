"""Outbound: the store."""
