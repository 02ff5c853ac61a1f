"""What confines commands that others have written, and what they are started and ended with."""
