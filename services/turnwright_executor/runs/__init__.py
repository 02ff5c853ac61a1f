"""Runs on this executor: workers, leases, and results that the store does not have yet."""
