"""The vocabulary on the wire: one module for each noun, `*_to_pb` and `*_from_pb`."""
