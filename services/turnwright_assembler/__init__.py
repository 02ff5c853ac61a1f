"""The assembler service: builds the packets that models read."""
