"""Inbound: decode, one call, encode."""
