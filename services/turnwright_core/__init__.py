"""What all services share: the vocabulary, limits, patterns, the wire conversions and the service kit."""

__version__ = "0.1.0"
