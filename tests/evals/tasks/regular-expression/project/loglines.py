"""Reads lines of a log: time, level, an optional component in brackets, and a message."""

import re

_LINE = re.compile(r"^(\d+:\d+) (INFO|WARN) (\[(\w+)\])((?:\s*\S+\s*)+)!?$")


def read(line):
    """Time, level, component (or None) and message; None for anything else."""
    found = _LINE.match(line)
    if not found:
        return None
    return found[1], found[2], found[4], found[5].strip()
