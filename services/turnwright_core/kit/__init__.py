"""The service kit: what a process of ours needs besides its own job (server, peers, errors, auth, logs, settings)."""
