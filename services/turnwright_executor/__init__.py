"""The executor service: runs and turns."""
