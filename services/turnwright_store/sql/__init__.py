"""Tables, statements built once, and how rows become vocabulary."""
