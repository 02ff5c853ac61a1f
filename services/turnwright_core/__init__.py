"""Shared by all services: the vocabulary, limits, patterns, wire conversions and the service kit."""

__version__ = "0.1.0"
"""The release. What is installed, images and manifests have it from here."""
