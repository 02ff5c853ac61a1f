"""What a path selects in a document."""

from __future__ import annotations

from msgspec import Struct


class Selection(Struct, frozen=True):
    """The text of the first selected thing, None when nothing is; `document` says whether there was one to read."""

    first: str | None
    document: bool = True


NO_DOCUMENT = Selection(None, document=False)


def with_spans_replaced(text: str, replacements: dict[tuple[int, int], str]) -> str | None:
    """Return `text` with each span replaced by its own text; None when two spans overlap."""
    pieces: list[str] = []
    at = 0
    for start, end in sorted(replacements):
        if start < at:
            return None
        pieces += [text[at:start], replacements[start, end]]
        at = end
    return "".join([*pieces, text[at:]])
