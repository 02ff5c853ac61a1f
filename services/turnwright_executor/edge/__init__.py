"""Outbound adapters of the executor: other services, files, processes, the web."""
