"""What executors call."""
