"""The tools that a model can call, one file each, with the documentation for the model next to it."""
