"""A reply in parts while it is streamed: its prose, and its calls as they begin, grow and end.

Nobody but the parser knows which text is prose and which is a command, and the parser itself is certain only at the end
of the reply. So what was shown and turns out otherwise is taken back: whatever the division into deltas, the parts that
are left at the end are those of the whole reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from turnwright_values.replies import CallBegun, CallEnded, CallGrown, TakenBack

from turnwright_core.chat.deltas import AppendContent, PartDelta
from turnwright_core.limits import CALL_NAME_CHARS_MAX
from turnwright_grammar.reader.parser import CANDIDATE
from turnwright_grammar.reader.streaming import ReplyReader
from turnwright_grammar.reply import COMMANDS_MAX, Command, Reply
from turnwright_grammar.tools import DEFAULT_TOOLS, canonicalize

LIVE_CHARS_MAX: Final = 32 * 1024
"""Code points of a reply behind which what may have to be read again is read only at the end."""
DELTA_CHARS_MAX: Final = 8 * 1024
"""Longest delta in which something may begin that is read at once, in code points; a longer one, and all behind it, is
read at the end."""

_HELD: Final = re.compile(r"<[^>]{0,40}\Z|\s+\Z")
"""The end of a body that may be the begin of its close."""
BODY: Final = "body"


class _Shown(Struct):
    """A call as it was shown, with its arguments in pieces."""

    name: str
    pieces: list[str]

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class PartsReader:
    """Reads one reply, and says after each delta what is to be shown. Never raises; linear, as the reader below it."""

    def __init__(
        self,
        *,
        known_tools: frozenset[str] = DEFAULT_TOOLS,
        commands_max: int = COMMANDS_MAX,
        calls_only: bool = False,
    ) -> None:
        """`calls_only`: in a reply with native calls the text is only text; else its commands come before them."""
        self._calls_only = calls_only
        self._calls: Sequence[tuple[str, str]] = ()
        """Native calls that come behind the commands of the text, whose number the end says."""
        self._reader = ReplyReader(known_tools=known_tools, commands_max=commands_max)
        self._commands_max = commands_max
        self._prose: list[str] = []
        self._blanks = ""
        self._ended: list[_Shown] = []
        self._open: _Shown | None = None
        self._open_at = self._open_scans = -1
        self._held = ""
        self._thought_ends = 0
        self._is_native = False
        self._chars = 0
        self._unread: list[str] = []

    def feed(self, delta: str) -> list[PartDelta]:
        if self._is_native:
            return [AppendContent(delta)] if delta else []
        self._chars += len(delta)
        if (
            self._unread
            or (len(delta) > DELTA_CHARS_MAX and CANDIDATE.search(delta))
            or (self._chars > LIVE_CHARS_MAX and self._reader.waits_at >= 0)
        ):
            self._unread.append(delta)
            return []
        self._reader.feed(delta)
        text = self._reader.narrated()
        parts: list[PartDelta] = []
        if self._reader.thought_ends > self._thought_ends:
            self._thought_ends = self._reader.thought_ends
            parts += self._take_back(0, 0)
        if text:
            parts += self._grow(text)
        for command in self._reader.commands[len(self._ended) : self._commands_max]:
            parts += self._end(command)
        if len(self._ended) < self._commands_max:
            parts += self._follow(delta)
        return parts

    def call(self, calls: Sequence[tuple[str, str]], text: str) -> list[PartDelta]:
        """The native calls so far, as names and arguments; `text` is the reply's so far."""
        if not self._calls_only:
            self._calls = calls
            return []
        parts = self._only_text(text)
        for index, (name, arguments) in enumerate(calls):
            if index < len(self._ended) and not (
                self._ended[index].name == name and arguments.startswith(self._ended[index].arguments)
            ):
                parts += self._take_back(None, index)
            if index == len(self._ended):
                self._ended.append(_Shown(name, []))
                parts.append(CallBegun(index, name[:CALL_NAME_CHARS_MAX]))
            shown = self._ended[index]
            if more := arguments[len(shown.arguments) :]:
                shown.pieces = [arguments]
                parts.append(CallGrown(index, more))
        return parts

    def _only_text(self, text: str) -> list[PartDelta]:
        """The reply, whose text so far this is, has no commands in its text."""
        if self._is_native:
            return []
        self._is_native = True
        shown, text = "".join(self._prose), text.lstrip()
        same = _common(shown, text)
        parts = [*self._take_back(same, 0)]
        return [*parts, AppendContent(text[same:])] if same < len(text) else parts

    def finish(
        self, rest: str = "", *, is_cut: bool = False, is_stopped: Callable[[], bool] = bool
    ) -> tuple[Reply, list[PartDelta]]:
        """Read the end of the reply; the whole reply, and what is still to be shown of it or taken back."""
        reply = self._reader.finish("".join((*self._unread, rest)), is_cut=is_cut, is_stopped=is_stopped)
        if self._is_native:
            # Vendors may let one grow after another has begun.
            return reply, [CallEnded(index) for index in range(len(self._ended))]
        shown = "".join(self._prose)
        same = _common(shown, reply.narration)
        kept = next(
            (place for place, one in enumerate(zip(self._ended, reply.commands, strict=False)) if not _is_shown(*one)),
            min(len(self._ended), len(reply.commands)),
        )
        parts: list[PartDelta] = []
        if same < len(shown) or kept < len(self._ended):
            parts += self._take_back(same, kept)
        if same < len(reply.narration):
            parts.append(AppendContent(reply.narration[same:]))
        for command in reply.commands[kept:]:
            parts += self._end(command)
        if self._open is not None:
            parts += self._take_back(len(reply.narration), len(self._ended))
        for index, (name, arguments) in enumerate(self._calls, len(self._ended)):
            parts.append(CallBegun(index, name[:CALL_NAME_CHARS_MAX]))
            parts += [CallGrown(index, arguments)] if arguments else []
            parts.append(CallEnded(index))
        return reply, parts

    def _grow(self, text: str) -> Iterator[PartDelta]:
        """Show prose, without blanks at its begin and its end."""
        text = self._blanks + text if self._prose else text.lstrip()
        shown = text.rstrip()
        self._blanks = text[len(shown) :]
        if shown:
            self._prose.append(shown)
            yield AppendContent(shown)

    def _follow(self, delta: str) -> Iterator[PartDelta]:
        """Show the call whose close has not come, and how it grows."""
        at, scans = self._reader.waits_at, self._reader.scans
        if at != self._open_at or (self._open is None and scans != self._open_scans):
            if self._open is not None:
                yield from self._take_back(None, len(self._ended))
            self._open_at, self._open_scans, opened = at, scans, self._reader.open_call() if at >= 0 else None
            if opened is None:
                return
            begin, delta = _beginning(opened), opened.body
            self._open, self._held = _Shown(opened.name, [begin]), ""
            yield CallBegun(len(self._ended), opened.name[:CALL_NAME_CHARS_MAX])
            yield CallGrown(len(self._ended), begin)
        if self._open is None:
            return
        text = self._held + delta
        held = _HELD.search(text)
        shown, self._held = (text[: held.start()], held[0]) if held else (text, "")
        if shown:
            self._open.pieces.append(_json(shown)[1:-1])
            yield CallGrown(len(self._ended), self._open.pieces[-1])

    def _end(self, command: Command) -> Iterator[PartDelta]:
        """Show that a call is complete, and what of it was not shown yet."""
        index, arguments = len(self._ended), arguments_of(command)
        shown = self._open.arguments if self._open else ""
        if self._open and not (self._open.name == command.name and arguments.startswith(shown)):
            yield from self._take_back(None, index)
            shown = ""
        if self._open is None:
            yield CallBegun(index, command.name[:CALL_NAME_CHARS_MAX])
        self._open, self._open_at = None, -1
        if more := arguments[len(shown) :]:
            yield CallGrown(index, more)
        self._ended.append(_Shown(command.name, [arguments]))
        yield CallEnded(index)

    def _take_back(self, prose_chars: int | None, calls: int) -> Iterator[PartDelta]:
        """Take back all prose from a length on (None: none of it), and all but the first calls."""
        chars = 0
        if prose_chars is not None:
            prose = "".join(self._prose)
            chars = max(0, len(prose) - prose_chars)
            self._prose, self._blanks = [prose[:prose_chars]] if prose_chars else [], ""
        is_begun = self._open is not None or calls < len(self._ended)
        self._open, self._open_at = None, -1
        del self._ended[calls:]
        if chars or is_begun:
            yield TakenBack(chars, calls)


def _is_shown(shown: _Shown, command: Command) -> bool:
    return shown.name == command.name and shown.arguments == arguments_of(command)


def arguments_of(command: Command) -> str:
    """The arguments of a call as JSON text, as its record has them."""
    body = {command.body_name or BODY: command.body} if command.body else {}
    return _json({**command.attributes, **body})


def _beginning(opened: Command) -> str:
    """The arguments of a call up to its body, which goes on."""
    mark = "\x00"
    fields, body = canonicalize(opened.name, dict(opened.attributes), mark)
    name = BODY if body else next((name for name, value in fields.items() if value == mark), BODY)
    before = _json({key: value for key, value in fields.items() if key != name})[:-1]
    return f'{before}{"," if len(before) > 1 else ""}{_json(name)}:"'


def _json(value: str | dict[str, str]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _common(one: str, other: str) -> int:
    if other.startswith(one):
        return len(one)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low
