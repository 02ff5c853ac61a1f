"""Use cases of the executor: the order of steps. `loop.py` reads as the story of a turn."""
