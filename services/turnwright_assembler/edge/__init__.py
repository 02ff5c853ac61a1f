"""Outbound adapter: the store."""
