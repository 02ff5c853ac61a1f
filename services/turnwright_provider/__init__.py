"""The provider: calls models and streams their replies. Knows vendors, keys and retries; nothing about runs."""
