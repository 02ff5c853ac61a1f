r"""Tables: fitted to the width of a terminal; in a pipe one row per line with tabs, never wrapped or truncated.

In a pipe control characters, tabs, line feeds and backslashes in a value are escaped as `\x1b`, `\t`, `

`, `\\`, so that every line is a row and every row has all its columns.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from turnwright_cli.output import console, is_pipe, write_line
from turnwright_cli.plain import safe_line, shown_line

COLUMNS_MIN: Final = 60
"""Width of a terminal from which a table has columns; below, each row is a paragraph."""

_ESCAPED: Final = str.maketrans({"\\": "\\\\"})


class Column(Struct, frozen=True):
    """A column; on a terminal its values are truncated to `chars_max` characters, if given.

    `decides`: people decide by its values, so that even on a terminal nothing in them may be hidden.
    """

    name: str
    chars_max: int = 0
    whole: bool = False
    """Not broken into lines: people copy its values."""
    decides: bool = False

    def shown(self, text: str) -> str:
        return (shown_line if self.decides else safe_line)(text, self.chars_max)


def show_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, empty: str = "", hint: str = "") -> None:
    """Print the rows below the column names.

    `empty` is printed if there are none, `hint` at the end; both are for people and left out in a pipe.
    """
    cells = list(rows)
    if is_pipe() or not (out := console()).is_terminal:
        for line in ([column.name for column in columns], *cells):
            write_line("\t".join(shown_line(value.translate(_ESCAPED)) for value in line))
        if not cells and empty:
            print(empty, file=sys.stderr)
        return
    from rich.table import Table  # noqa: PLC0415 - not in a pipe
    from rich.text import Text  # noqa: PLC0415 - as above

    if not cells:
        out.print(empty, markup=False)
        return
    if out.width < COLUMNS_MIN:
        for row in cells:
            texts = (column.shown(value) for column, value in zip(columns, row, strict=True))
            out.print("  ".join(filter(None, texts)), markup=False, soft_wrap=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.name, overflow="fold", no_wrap=column.whole)
    for row in cells:
        table.add_row(*(Text(column.shown(value)) for column, value in zip(columns, row, strict=True)))
    out.print(table, soft_wrap=False)
    if hint:
        out.print(hint, markup=False)
