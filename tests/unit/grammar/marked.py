"""Edits written in our marker grammar, for tests."""

import re

_MARKER_WORD = re.compile(r"(?:SEARCH|REPLACE|NEW)(\d*)")


def marker_body(pairs: list[tuple[str, str]]) -> str:
    """Return `(search, replacement)` pairs as a body in marker grammar, with a suffix that collides with nothing."""
    used = {found[1] for pair in pairs for part in pair for found in _MARKER_WORD.finditer(part)}
    suffix = next(word for word in ["", *map(str, range(1, len(used) + 2))] if word not in used)
    return "\n".join(_pair(search, replacement, suffix) for search, replacement in pairs)


def _pair(search: str, replacement: str, suffix: str) -> str:
    return f"<<SEARCH{suffix}\n{_ended(search)}SEARCH{suffix}\n<<REPLACE{suffix}\n{_ended(replacement)}REPLACE{suffix}"


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
