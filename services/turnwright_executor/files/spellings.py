"""Names of files in another spelling: macOS decomposes letters and their accents, which everybody else composes."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice

from turnwright_core.patterns.typography import composed
from turnwright_executor.files.confinement import NAMES_MAX


def respelled(root: str, relative: str) -> str | None:
    """The path with its first missing name as the one sibling has it that differs only in composed letters (NFC, NFD).

    None: nothing is missing, or there is no such sibling, or several.
    """
    names = relative.split("/")
    if names[0] == "..":
        return None
    folder = root
    for index, name in enumerate(names):
        place = f"{folder}/{name}"
        if not os.path.lexists(place):
            with suppress(OSError), os.scandir(folder) as found:
                siblings = (one.name for one in islice(found, NAMES_MAX))
                same = [sibling for sibling in siblings if composed(sibling) == composed(name)]
                return "/".join([*names[:index], *same, *names[index + 1 :]]) if len(same) == 1 else None
            return None
        folder = place
    return None
