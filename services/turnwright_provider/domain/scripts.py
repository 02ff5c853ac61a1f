"""Scripts: written replies that the scripted vendor replays, as plain text.

    === reply chunk_chars=24 delay_ms=15 after_ms=0 ===      every figure may be left out
    The text of the first reply.
    === error class=rate_limit status=429 attempts=2 ===     the next reply is preceded by two failed tries
    === reply ===
    The text of the second reply.

Text before the first such line is a reply of its own. An error that no reply follows is a call that always fails.
Blank lines around a reply do not belong to it. Replies are replayed as they are: no think tags are routed.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct, field

from turnwright_provider.domain.failures import Failure, FailureClass

_LINE: Final = re.compile(r"===\s{0,9}(reply|error)\b([^=](?:[^=]|=(?!==)){0,500})?===\s{0,9}")
_OPTION: Final = re.compile(r"([a-z_]{1,32})=([A-Za-z0-9_.-]{1,64})")
_REPLY_OPTIONS: Final = frozenset({"chunk_chars", "delay_ms", "after_ms"})
_ERROR_OPTIONS: Final = frozenset({"class", "status", "attempts", "detail"})
_NUMBER_MAX: Final = 3_600_000

_STATUS: Final[dict[FailureClass, int]] = {
    FailureClass.RATE_LIMIT: 429,
    FailureClass.WARMUP: 503,
    FailureClass.GATEWAY: 502,
    FailureClass.SERVER: 500,
    FailureClass.AUTH: 401,
    FailureClass.CONTEXT_EXCEEDED: 400,
    FailureClass.INVALID: 400,
}
"""The status of a scripted error that names none."""


class ScriptError(Exception):
    """A script is not written as it must be; the text names the line."""


class ScriptedError(Struct, frozen=True):
    """So many failed tries."""

    failure: Failure
    attempts: int


class ScriptedReply(Struct, frozen=True):
    """One reply and its pace: code points per chunk, milliseconds between chunks and before the first.

    `text` is None where only errors were written. `errors` come first.
    """

    text: str | None = None
    chunk_chars: int = 24
    delay_ms: int = 15
    after_ms: int = 0
    errors: tuple[ScriptedError, ...] = ()

    def failure_of(self, attempt: int) -> Failure | None:
        """How the try `attempt` (1-based) fails; None when it succeeds."""
        before = 0
        for error in self.errors:
            before += error.attempts
            if attempt <= before:
                return error.failure
        return self.errors[-1].failure if self.text is None and self.errors else None


class _Open(Struct):
    """The reply that is being read."""

    options: dict[str, int] = field(default_factory=dict)
    lines: list[str] | None = None
    errors: list[ScriptedError] = field(default_factory=list)

    def close(self) -> ScriptedReply | None:
        """The reply; None where nothing was written."""
        text = None if self.lines is None else "\n".join(self.lines).strip("\n")
        if text is None and not self.errors:
            return None
        return ScriptedReply(text, errors=tuple(self.errors), **self.options)


def parse_script(text: str) -> tuple[ScriptedReply, ...]:
    """The replies of a script. Raises ScriptError."""
    replies: list[ScriptedReply | None] = []
    current = _Open()
    preface: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        marker = _LINE.fullmatch(line)
        if marker is None:
            _append(current, preface, line, number)
            continue
        options = dict(_OPTION.findall(marker[2] or ""))
        if current.lines is not None:
            replies.append(current.close())
            current = _Open()
        if marker[1] == "error":
            current.errors.append(_error(options, number))
        else:
            current.options, current.lines = _numbers(options, _REPLY_OPTIONS, number), []
    replies.append(current.close())
    first = "\n".join(preface).strip("\n")
    return tuple(reply for reply in (ScriptedReply(first) if first.strip() else None, *replies) if reply)


def _append(current: _Open, preface: list[str], line: str, number: int) -> None:
    if current.lines is not None:
        current.lines.append(line)
    elif not current.errors:
        preface.append(line)
    elif line.strip():
        raise ScriptError(f"line {number}: text may not follow an error; begin a reply with `=== reply ===`")


def _error(options: dict[str, str], number: int) -> ScriptedError:
    try:
        kind = FailureClass(options.pop("class", "server"))
    except ValueError:
        words = ", ".join(kind.value for kind in FailureClass)
        raise ScriptError(f"line {number}: the class of an error is one of {words}") from None
    detail = options.pop("detail", "").replace("_", " ") or f"the script says {kind.value}"
    figures = _numbers(options, _ERROR_OPTIONS, number)
    failure = Failure(kind, detail, figures.get("status", _STATUS.get(kind, 0)))
    return ScriptedError(failure, max(1, figures.get("attempts", 1)))


def _numbers(options: dict[str, str], known: frozenset[str], number: int) -> dict[str, int]:
    for name, value in options.items():
        if name not in known:
            raise ScriptError(f"line {number}: {name} is not an option here; there are {', '.join(sorted(known))}")
        if not value.isdecimal() or int(value) > _NUMBER_MAX or (name == "chunk_chars" and int(value) == 0):
            raise ScriptError(
                f"line {number}: {name}={value} is not a number from {int(name == 'chunk_chars')} to {_NUMBER_MAX}"
            )
    return {name: int(value) for name, value in options.items()}
