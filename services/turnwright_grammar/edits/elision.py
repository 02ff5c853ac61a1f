"""Searches that leave lines out: `...` alone on a line, as often in the search as in the replacement.

    SEARCH                REPLACE
    def area(shape):      def area(shape, scale):
        ...                   ...
        return w * h          return w * h * scale

Each piece between the marks is replaced by its counterpart, the pieces in order; what was left out stays.

Source: the issue's "lose nothing"; without it such a pair could only conflict.
"""

from __future__ import annotations

from turnwright_core.patterns import Replaced, block_of, replace_region

_MARKS = frozenset({"...", "\u2026"})


def elided_pairs(search: str, replacement: str) -> list[tuple[str, str]] | None:
    """Return the pieces of a search with those of its replacement; None when nothing is left out, or not alike."""
    pieces, counterparts = _pieces(search), _pieces(replacement)
    if len(pieces) < 2 or len(pieces) != len(counterparts):
        return None
    pairs = [pair for pair in zip(pieces, counterparts, strict=True) if pair != ("", "")]
    return pairs if pairs and all(piece.strip() for piece, _ in pairs) else None


def replace_elided(text: str, pairs: list[tuple[str, str]]) -> str | None:
    """Return `text` with every piece replaced, each behind the one before; None when one does not fit one place."""
    done = ""
    for piece, counterpart in pairs:
        result = replace_region(text, piece, counterpart)
        if not isinstance(result, Replaced):
            return None
        end = len(result.text) - (len(text) - result.place.end)
        # The rest of the last line is no line of its own.
        end += result.text.startswith("\r\n", end) * 2 or result.text.startswith("\n", end)
        done, text = done + result.text[:end], result.text[end:]
    return done + text


def _pieces(text: str) -> list[str]:
    pieces: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip() in _MARKS:
            pieces.append([])
        else:
            pieces[-1].append(line)
    return [block_of(piece) for piece in pieces]
