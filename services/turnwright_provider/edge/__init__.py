"""Outbound: HTTP."""
