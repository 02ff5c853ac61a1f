"""The `turnwright` command."""
