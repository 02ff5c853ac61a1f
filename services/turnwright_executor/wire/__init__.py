"""Values of the executor as they go over the wire and into the store."""
