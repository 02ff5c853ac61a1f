"""Conversion between the executor's values and their messages."""
