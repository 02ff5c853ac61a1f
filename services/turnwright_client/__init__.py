"""The Python client library."""
