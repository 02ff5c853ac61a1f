"""Conversion between the vocabulary and protobuf: one module for each noun, `*_to_pb` and `*_from_pb`."""
