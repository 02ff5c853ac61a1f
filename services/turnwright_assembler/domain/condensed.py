"""What stands in a transcript for a result that has given way: both ends of it, or a line that says where it is.

It depends on the entry alone, so it stays the same in every turn that follows. Source: rows RL06, RL08.
"""

from __future__ import annotations

from typing import Final

END_CHARS: Final = 300
"""Code points of each end that a condensed result keeps."""

STUB: Final = "This result was left out to save room. `get` of {path} shows it again."
"""What a model reads in the place of an archived result."""

_CUT: Final = "[{count} characters were left out here to save room. `get` of {path} with line and limit shows them.]"


def condensed(path: str, text: str) -> str:
    """Both ends of a result; all of it where that would not be longer."""
    count = len(text) - 2 * END_CHARS
    if count <= 0:
        return text
    short = "\n".join((text[:END_CHARS], _CUT.format(count=count, path=path), text[-END_CHARS:]))
    return short if len(short) < len(text) else text


def stub(path: str, text: str) -> str:
    """The line in place of a result; the result itself where that would not be longer."""
    short = STUB.format(path=path)
    return short if len(short) < len(text) else text
