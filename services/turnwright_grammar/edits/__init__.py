"""Parsing `set` bodies, in every format in which models write edits, and applying them to a text."""
