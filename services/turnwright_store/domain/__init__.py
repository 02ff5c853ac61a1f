"""Rules of the store: pure functions without I/O or a clock."""
