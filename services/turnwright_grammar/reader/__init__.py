"""From text to commands: the walk over a reply, and the handlers of what it meets."""
