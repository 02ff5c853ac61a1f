"""The operations of a `set` body, whatever its format."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from turnwright_grammar.edits.hunks import Hunk

OperationKind = Literal["new", "prepend", "append", "replace", "delete", "search_replace", "substitute"]


class Operation(Struct, frozen=True):
    """One edit of a body.

    | kind | from | fields |
    |---|---|---|
    | new, prepend, append, replace, delete | markers, a plain body | `content` |
    | search_replace | markers, conflict blocks, hunks | `search`, `replace`; `line` and `hunk` where given |
    | substitute | sed | `search`, `replace` as written but for the delimiter; `every`, `ignore_case`, `lines` |

    The sides of a search_replace are blocks (`patterns.lines_in`). A substitute without a search is not complete.
    `line` (from 1, in the text before all edits) decides between places that fit equally well; a hunk
    says more about its place. `adds_lines`: a prepend or append that was written over lines (C61). `lines` are the
    first and the last line that sed's address names, None being the last line of the text.
    """

    kind: OperationKind
    content: str = ""
    search: str = ""
    replace: str = ""
    every: bool = False
    ignore_case: bool = False
    lines: tuple[int | None, int | None] | None = None
    line: int | None = None
    hunk: Hunk | None = None
    adds_lines: bool = False


def marker_block(text: str) -> str:
    """Return the block (`patterns.lines_in`) of the text between two lines of markers, where every line has its end."""
    return text.removesuffix("\n").removesuffix("\r") if text.strip() else text


class EditSyntaxError(Struct, frozen=True):
    """A body that breaks the grammar, at this line of it. A value, not an exception: models write it. Source: RU269."""

    message: str
    line: int


class Edits(Struct, frozen=True):
    """The operations of a body in order.

    `marked` is false for a plain body; `notes` tell the model about leniency.
    """

    operations: tuple[Operation, ...]
    marked: bool = True
    notes: tuple[str, ...] = field(default=())
