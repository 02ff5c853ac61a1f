"""What the body of a `set` asks for, in every form models write edits in, and applying it to a text."""
