"""The parser of replies, and the handlers of its triggers."""
