"""Rules of the store: no I/O, no clock."""
