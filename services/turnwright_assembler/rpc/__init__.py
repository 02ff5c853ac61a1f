"""Inbound: the rpcs of the assembler."""
