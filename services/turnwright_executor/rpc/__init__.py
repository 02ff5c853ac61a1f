"""The executor's face on the wire."""
