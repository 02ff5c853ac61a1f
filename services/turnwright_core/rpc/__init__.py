"""Calls of services, as every caller of them makes them: channels, TLS, deadlines, credentials, errors."""
