"""Inbound: the gRPC face."""
