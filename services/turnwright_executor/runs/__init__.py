"""Which loops this executor works on: its workers, its leases, and what the store has not taken yet."""
