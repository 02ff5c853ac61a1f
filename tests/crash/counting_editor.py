"""A plugin that edits each prompt in another way: with the number of its calls, which it counts in a file of the home."""

import os
from pathlib import Path


def register(registry):
    registry.prompt(count)


def count(prompt, _context):
    with (Path(os.environ["TURNWRIGHT_HOME"]) / "edits").open("a") as calls:
        calls.write(".")
        calls.flush()
        prompt.append("user", f"edit {calls.tell()}.")
