"""What the executor needs from outside, one file for each peer or place."""
