"""The rules of a packet: pure functions and tables over the entries of one run."""
