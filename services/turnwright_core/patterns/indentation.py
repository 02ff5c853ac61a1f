"""Re-indents a replacement to match the file.

A model that searched for `if (x) {` at the margin, while the file has it indented by four spaces, writes its
replacement at the margin too. The matched lines of search and file tell how one indentation maps to the other; deeper
lines keep their extra depth.
"""

from __future__ import annotations


def reindent(search: str, matched: str, new: str) -> str:
    """`new` with its indentation shifted as from `search` to `matched`. Never raises."""
    moves = _moves(search, matched)
    if all(old == kept for old, kept in moves.items()):
        return new
    moved: dict[str, str] = {}
    lines = new.split("\n")
    for line in lines:
        indent = indent_of(line)
        if indent not in moved:
            moved[indent] = _moved(indent, moves)
    return "\n".join(moved[indent_of(line)] + line.lstrip() if line.strip() else line for line in lines)


def _moves(search: str, matched: str) -> dict[str, str]:
    """Maps the indentations of the searched lines to those of the lines in the file."""
    searched = [line for line in search.split("\n") if line.strip()]
    existing = [line for line in matched.split("\n") if line.strip()]
    moves: dict[str, str] = {}
    for old, kept in zip(searched, existing, strict=False):
        moves.setdefault(indent_of(old), indent_of(kept))
    return moves


def _moved(indent: str, moves: dict[str, str]) -> str:
    if indent in moves:
        return moves[indent]
    known = max((old for old in moves if indent.startswith(old)), key=len, default=None)
    if known is not None:
        return moves[known] + indent[len(known) :]
    # Shallower than any searched line: remove as much as for the shallowest searched line.
    shallowest = min(moves, key=len)
    removed = len(shallowest) - len(indent)
    kept = moves[shallowest]
    return kept[:-removed] if removed <= len(kept) else ""


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
