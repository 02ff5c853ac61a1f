"""The tools that a model can call, one file each, with the text that the model reads beside it."""
