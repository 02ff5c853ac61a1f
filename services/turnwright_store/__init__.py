"""The store service: owner of every row."""
