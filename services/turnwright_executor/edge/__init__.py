"""What the executor reaches outside: other services, files, processes."""
