"""Replacement templates of a regex, with references to groups.

`$1` to `$99` and `$<name>` are groups, `$&` is the whole match, `$$` a dollar; anything else, including a reference to
a missing group, is literal.
"""

from __future__ import annotations

import regex

from turnwright_core.patterns.bounds import check_length

_REFERENCE = regex.compile(r"(\$(?:\d{1,2}|<\w+>|&|\$))")


class Template:
    """A replacement split into literals and references, for the matches of one call."""

    def __init__(self, pattern: str, replacement: str, chars: int, *, literal: bool = False) -> None:
        """Prepare `replacement` for a text of `chars` characters; a `literal` one has no references."""
        self.pattern = pattern
        # Literals and references alternate.
        self.pieces: list[str] = [replacement] if literal else _REFERENCE.split(replacement)
        self.written = chars

    def fill(self, found: regex.Match[str]) -> str:
        """The replacement for one match. Raises PatternError if the text grows too long."""
        texts = {reference: _referred(reference, found) for reference in dict.fromkeys(self.pieces[1::2])}
        pieces = [texts[piece] if index % 2 else piece for index, piece in enumerate(self.pieces)]
        self.written += sum(map(len, pieces))
        check_length(self.pattern, self.written)
        return "".join(pieces)


def _referred(reference: str, found: regex.Match[str]) -> str:
    match reference[1]:
        case "$":
            return "$"
        case "&":
            return str(found[0])
        case "<":
            group: int | str = reference[2:-1]
        case _:
            group = int(reference[1:])
    try:
        return str(found[group] or "")
    except (IndexError, KeyError):
        return reference
