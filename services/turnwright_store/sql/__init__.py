"""Tables, statements as module constants, and the mapping of rows to the vocabulary."""
