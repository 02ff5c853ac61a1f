"""One file per vendor; wiring's table finds them."""
