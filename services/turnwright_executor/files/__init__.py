"""A project's files on this host: found, read, written and watched, confined to its root."""
