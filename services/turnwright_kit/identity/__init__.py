"""Who calls: the value, where it is made, and the proofs that are accepted for it."""
