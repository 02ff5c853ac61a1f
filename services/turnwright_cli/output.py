"""Standard output: lines, JSON and tables, which survive a broken pipe. If its reader exits, the work goes on.

A table fits the width of a terminal. In a pipe it is one row per line with tabs, never wrapped or truncated, with
control characters, tabs, line feeds and backslashes in a value escaped.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Final, Generic, Literal, TypeVar, cast

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from msgspec import Struct

from turnwright_cli.plain import safe_line, shown_line
from turnwright_cli.plugin_output import own_stdout

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from turnwright_cli.invocation import Invocation

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def enum_word(kind: EnumDescriptor, number: int) -> str:
    """The word of a value: `earlier_turns`; empty for UNSPECIFIED, and for one of a later release."""
    found = kind.values_by_number.get(number) if number else None
    return found.name.removeprefix(kind.values_by_number[0].name.removesuffix("UNSPECIFIED")).lower() if found else ""


STALLED_POLL_S: Final = 0.05
"""Pause before standard output is tried again whose reader takes nothing, in seconds."""

_FORCING: Final = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables by which rich takes a pipe for a terminal."""


class _BrokenPipeGuard:
    """A text stream that outlives its reader or its terminal: from then on, output is discarded."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._forget(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._forget(error)

    def _forget(self, error: OSError) -> None:
        """Redirect the descriptor to /dev/null: what the stream still buffers must not fail at exit either."""
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def guarded_stdout() -> IO[str]:
    """Standard output; characters that its encoding lacks are replaced."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    return cast("IO[str]", _BrokenPipeGuard(own_stdout()))


async def while_read(messages: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The messages, each once standard output takes more (backpressure). Closes their source.

    A write that blocks, because a pager is full or a terminal is halted, would stop the services in this process too:
    they would lose the lease of the run that is shown.
    """
    output = select.poll()
    output.register(sys.stdout, select.POLLOUT)
    async with contextlib.aclosing(messages):
        async for message in messages:
            while not output.poll(0):  # noqa: ASYNC110 - nothing reports it for files, pipes and terminals alike
                await asyncio.sleep(STALLED_POLL_S)
            yield message


def is_pipe() -> bool:
    """Whether lines go to a program, so that nothing is drawn."""
    return not sys.stdout.isatty() and not any(os.environ.get(name) for name in _FORCING)


def console() -> Console:
    """A console on standard output: no colours under NO_COLOR, plain text in a pipe."""
    from rich.console import Console

    return Console(file=guarded_stdout(), highlight=False, soft_wrap=True)


def put(console: Console, what: RenderableType, end: str = "\n", *, wrap: bool = False) -> None:
    """Print to a console; in a pipe the text is unchanged, including tabs. `wrap` breaks long lines between words."""
    from rich.text import Text

    if isinstance(what, Text) and not console.is_terminal:
        console.file.write(what.plain + end)
        console.file.flush()
    else:
        console.print(what, end=end, soft_wrap=isinstance(what, Text) and not wrap, markup=False, highlight=False)


def write_line(text: str) -> None:
    stream = guarded_stdout()
    stream.write(text + "\n")
    stream.flush()


def complain(text: str) -> None:
    """Print a sentence to standard error, after the command's name."""
    print(f"turnwright: {text}", file=sys.stderr)


def to_line(message: Message) -> str:
    return MessageToJson(message, preserving_proto_field_name=True, indent=None)


def show_lines(messages: Iterable[Message]) -> int:
    for message in messages:
        write_line(to_line(message))
    return 0


def answer(call: Invocation, messages: Iterable[Message], *lines: str) -> int:
    """Print the messages with --json, else lines for people."""
    if call.as_json:
        return show_lines(messages)
    for line in lines:
        write_line(line)
    return 0


COLUMNS_MIN: Final = 60
"""Width of a terminal from which a table has columns; below, each row is a paragraph."""

_ESCAPED: Final = str.maketrans({"\\": "\\\\"})


class Column(Struct, Generic[T], frozen=True):
    """A column of a list, with its value for each item; on a terminal truncated to `chars_max` characters, if given.

    `decides`: people decide by its values, so that even on a terminal nothing in them may be hidden.
    """

    name: str
    value: Callable[[T], str]
    chars_max: int = 0
    whole: bool = False
    """Not broken into lines: people copy its values."""
    decides: bool = False

    def shown(self, item: T) -> str:
        return (shown_line if self.decides else safe_line)(self.value(item), self.chars_max)


def show_list(
    call: Invocation, messages: Sequence[M], columns: Sequence[Column[M]], *, empty: str = "", hint: str = ""
) -> int:
    """Print the messages with --json, else a table."""
    if call.as_json:
        return show_lines(messages)
    show_table(columns, messages, empty=empty, hint=hint)
    return 0


def row_line(values: Iterable[str]) -> str:
    return "\t".join(shown_line(value.translate(_ESCAPED)) for value in values)


def show_table(columns: Sequence[Column[T]], items: Sequence[T], *, empty: str = "", hint: str = "") -> None:
    """Print a row for each item below the column names.

    `empty` is printed if there are none, `hint` at the end; both are for people and left out in a pipe.
    """
    if is_pipe() or not (out := console()).is_terminal:
        for line in ([one.name for one in columns], *([one.value(item) for one in columns] for item in items)):
            write_line(row_line(line))
        if not items and empty:
            print(empty, file=sys.stderr)
    elif not items:
        out.print(empty, markup=False)
    elif out.width < COLUMNS_MIN:
        for item in items:
            texts = (column.shown(item) for column in columns)
            out.print("  ".join(filter(None, texts)), markup=False, soft_wrap=False)
    else:
        out.print(table_of(columns, items), soft_wrap=False)
        if hint:
            out.print(hint, markup=False)


def table_of(columns: Sequence[Column[T]], items: Iterable[T], *, is_folded: bool = True) -> Table:
    """A row for each item; a value that does not fit is folded, or else cut."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        overflow: Literal["fold", "ellipsis"] = "fold" if is_folded else "ellipsis"
        table.add_column(column.name, overflow=overflow, no_wrap=column.whole or not is_folded)
    for item in items:
        table.add_row(*(Text(column.shown(item)) for column in columns))
    return table
