"""Use cases of the assembler."""
