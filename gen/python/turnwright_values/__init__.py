"""Values of messages. Generated: `make gen`."""
