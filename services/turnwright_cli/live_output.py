"""The output of running commands: the first lines as they arrive, the last ones when the command ends.

Pieces have offsets, so nothing is shown twice. The lines in between are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec import Struct, field
from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import entry_pb2

from turnwright_cli.plain import safe_text
from turnwright_core.streams import record_of_channel
from turnwright_core.text import scheme_of

HEAD_LINES: Final = 12
"""Lines of a command that are shown as they arrive."""

TAIL_LINES: Final = 4
"""Lines that are shown at its end, of those that were not shown."""

LINE_CHARS_MAX: Final = 4096
"""Longest line in characters; a longer one counts as several."""

TAB_CHARS: Final = 4
"""Distance of tab stops."""

ERRORS: Final = 2
"""The channel that is shown as errors."""


class OutputLine(Struct, frozen=True):
    """One line of output, without anything that moves a cursor."""

    text: str
    is_error: bool = False


class _Command(Struct):
    """What was shown of one command, and the lines kept for its end."""

    shown: int = 0
    hidden: int = 0
    tail: deque[OutputLine] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))


class _Channel(Struct):
    """How far a channel was read, in bytes, and the unfinished line."""

    record: str
    is_error: bool
    bytes_: int = 0
    open_line: str = ""


class LiveOutput:
    """The output of running commands. `show` prints a line."""

    def __init__(self, show: Callable[[OutputLine], None]) -> None:
        self._show = show
        self._channels: dict[str, _Channel] = {}
        self._commands: dict[str, _Command] = {}

    def entered(self, entry: entry_pb2.Entry, *, is_over: bool = False) -> None:
        """A channel as of now; the part of its body that was already shown is skipped.

        `is_over`: its command has ended and was not shown yet.
        """
        place = record_of_channel(entry.path)
        if place is None:
            return
        if entry.path not in self._channels:
            if entry.state != entry_pb2.STATE_STREAMING and not is_over:
                return
            self._channels[entry.path] = _Channel(place[0], place[1] == ERRORS)
            self._commands.setdefault(place[0], _Command())
        channel = self._channels[entry.path]
        self._read(channel, 0, entry.body)
        if entry.body_size_bytes > channel.bytes_:
            # An event carries no more of a body than its beginning.
            self._skip(channel, entry.body_size_bytes)

    def grew(self, piece: event_pb2.OutputAppended) -> None:
        """A piece of a channel; ignored for an unknown channel."""
        if channel := self._channels.get(piece.path):
            self._read(channel, piece.offset, piece.text)

    def ended(self, record: str) -> None:
        for path in [path for path, channel in self._channels.items() if channel.record == record]:
            channel = self._channels.pop(path)
            if channel.open_line:
                self._line(channel, channel.open_line)
        command = self._commands.pop(record, None)
        if command is None:
            return
        if left_out := command.hidden - len(command.tail):
            self._show(OutputLine(f"... {left_out:,} more line{'' if left_out == 1 else 's'}"))
        for line in command.tail:
            self._show(line)

    def hidden(self) -> str:
        """How many lines of running commands were not shown, in words; empty if none."""
        count = sum(command.hidden for command in self._commands.values())
        return f"running, {count:,} more line{'' if count == 1 else 's'} of output" if count else ""

    def _read(self, channel: _Channel, offset: int, text: str) -> None:
        data = text.encode()
        end = offset + len(data)
        if end <= channel.bytes_:
            return
        if offset > channel.bytes_:
            self._skip(channel, offset)
        fresh = data[max(0, channel.bytes_ - offset) :].decode(errors="ignore")
        channel.bytes_ = end
        *lines, rest = (channel.open_line + fresh).split("\n")
        while len(rest) > LINE_CHARS_MAX:
            lines.append(rest[:LINE_CHARS_MAX])
            rest = rest[LINE_CHARS_MAX:]
        channel.open_line = rest
        for line in lines:
            self._line(channel, line)

    def _skip(self, channel: _Channel, offset: int) -> None:
        """Continue at a later offset; what lies between stays unseen."""
        if channel.open_line:
            self._line(channel, channel.open_line)
        self._line(channel, "...")
        channel.open_line, channel.bytes_ = "", offset

    def _line(self, channel: _Channel, text: str) -> None:
        # What a carriage return writes over is not seen on a terminal either.
        text = safe_text(text.rstrip("\r").rpartition("\r")[2]).expandtabs(TAB_CHARS).rstrip()
        line = OutputLine(text, channel.is_error)
        command = self._commands[channel.record]
        if command.shown < HEAD_LINES:
            command.shown += 1
            self._show(line)
            return
        command.hidden += 1
        command.tail.append(line)


CONTENT: Final = "append_content"
REASONING: Final = "append_reasoning"

_KINDS: Final = {"reasoning": REASONING, "assistant": CONTENT}
"""The kind of text for each scheme of entries that contain it."""


class ShownReplies:
    """The texts of replies shown so far, by turn."""

    def __init__(self) -> None:
        self._shown: dict[tuple[int, str], list[str]] = {}
        self._has_gap = False
        self._first = 1

    def begin(self, after_turn: int) -> None:
        """Show only replies after this turn; earlier ones belong to another command."""
        self._first = after_turn + 1

    def started(self, turn: int) -> bool:
        """The model starts to answer; whether some text of an earlier attempt was shown."""
        content, reasoning = (self._shown.pop((turn, kind), None) for kind in (CONTENT, REASONING))
        return bool(content or reasoning)

    def jumped(self) -> None:
        """A snapshot replaced events: the next text of a turn need not continue what was shown."""
        self._has_gap = True

    def grew(self, turn: int, kind: str, text: str) -> None:
        self._shown.setdefault((turn, kind), []).append(text)

    def took_back(self, turn: int, chars: int) -> None:
        """The last so many code points of a text were none."""
        text = "".join(self._shown.get((turn, CONTENT), ()))
        self._shown[turn, CONTENT] = [text[: len(text) - chars]]

    def rest(self, turn: int, kind: str, whole: str) -> str:
        """The part of a text that was not shown yet; it counts as shown from now on."""
        shown = "".join(self._shown.get((turn, kind), ()))
        if whole.startswith(shown):
            rest = whole[len(shown) :]
        else:
            # More than this was shown, or it is the text of another attempt.
            rest = "" if shown.startswith(whole) or not self._has_gap else whole
        if rest:
            self._shown[turn, kind] = [whole]
        # A thought that was closed and never opened was shown as content.
        is_moved = kind == REASONING and "".join(self._shown.get((turn, CONTENT), ())).startswith(rest)
        return "" if is_moved else rest

    def ended_with(self, text: str) -> bool:
        """Whether the latest text that was shown of the model ends with this."""
        latest = max((turn for turn, kind in self._shown if kind == CONTENT), default=0)
        return "".join(self._shown.get((latest, CONTENT), ())).strip().endswith(text.strip())

    def text_of(self, entry: entry_pb2.Entry) -> tuple[int, str] | None:
        """Turn and kind of an entry that contains a text to show; None for others."""
        kind = _KINDS.get(scheme_of(entry.path) or "")
        return (entry.turn, kind) if kind and entry.turn >= self._first else None

    def lacks(self, entry: entry_pb2.Entry) -> bool:
        """Whether an entry was truncated before the end of a text that was not completely shown."""
        text = self.text_of(entry)
        if text is None or len(entry.body.encode()) >= entry.body_size_bytes:
            return False
        return sum(len(piece.encode()) for piece in self._shown.get(text, ())) < entry.body_size_bytes
