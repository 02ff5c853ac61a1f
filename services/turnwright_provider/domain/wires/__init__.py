"""Codecs for the vendors' APIs: for each wire the request, and a fold over the response's events. Pure."""
