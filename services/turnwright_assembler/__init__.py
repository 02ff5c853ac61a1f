"""The assembler service: what the model reads."""
