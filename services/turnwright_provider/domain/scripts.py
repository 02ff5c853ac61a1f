"""Scripts: written replies that the scripted vendor replays, as plain text.

    === reply chunk_chars=24 delay_ms=15 after_ms=0 ===      every figure may be left out
    The text of the first reply.
    === error class=rate_limit status=429 attempts=2 ===     the next reply is preceded by two failed tries
    === reply finish=tool_calls prompt_tokens=90 completion_tokens=12 cost_usd=0.002 ===
    === reasoning ===                                        what the model thinks, in words only
    I should look first.
    === thinking signature=c2lnbmVk ===                      a block of reasoning that the vendor wants back
    Where is it?
    === call name=get id=call_a ===                          a native call; its text is the arguments
    {"path": "src/main.py"}
    === text ===                                             the text of the reply goes on

Text before the first such line is a reply of its own. An error that no reply follows is a call that always fails.
Blank lines around a section do not belong to it. Replies are replayed as they are: no think tags are routed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from msgspec import Struct, field

from turnwright_provider.domain.failures import Failure, FailureClass

_LINE: Final = re.compile(
    r"===\s{0,9}(reply|error|text|reasoning|thinking|call)\b([^=](?:[^=]|=(?!==)){0,1000})?===\s{0,9}"
)
_OPTION: Final = re.compile(r"([a-z_]{1,32})=([A-Za-z0-9_.+/-]{1,256})")
_COST: Final = re.compile(r"\d{1,6}(?:\.\d{1,9})?")
_REPLY_OPTIONS: Final = frozenset({"chunk_chars", "delay_ms", "after_ms"})
_USAGE_OPTIONS: Final = frozenset(
    {"prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens"}
)
_SECTION_OPTIONS: Final = {
    "text": frozenset[str](),
    "reasoning": frozenset[str](),
    "thinking": frozenset({"type", "id", "signature", "data"}),
    "call": frozenset({"name", "id", "signature"}),
}
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
    """Maximum failed attempts of a script."""

    failure: Failure
    attempts: int


class ScriptedSection(Struct, frozen=True):
    """A stretch of a reply: `text`, `reasoning`, `thinking` or `call`."""

    kind: str
    text: str
    options: dict[str, str] = field(default_factory=dict)


class ScriptedReply(Struct, frozen=True):
    """One reply and its pace: code points per chunk, milliseconds between chunks and before the first.

    `sections` is None where only errors were written; `errors` come first. `usage` holds the figures that are not to be
    estimated.
    """

    sections: tuple[ScriptedSection, ...] | None = None
    chunk_chars: int = 24
    delay_ms: int = 15
    after_ms: int = 0
    errors: tuple[ScriptedError, ...] = ()
    finish: str = ""
    usage: dict[str, float] = field(default_factory=dict)

    def failure_of(self, attempt: int) -> Failure | None:
        """How the try `attempt` (1-based) fails; None when it succeeds."""
        before = 0
        for error in self.errors:
            before += error.attempts
            if attempt <= before:
                return error.failure
        return self.errors[-1].failure if self.sections is None and self.errors else None


class _OpenSection(Struct):
    """The section that is being read."""

    kind: str
    options: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def close(self) -> ScriptedSection | None:
        """The section; None for a text without anything in it."""
        text = "\n".join(self.lines).strip("\n")
        return ScriptedSection(self.kind, text, self.options) if text or self.kind != "text" else None


class _Open(Struct):
    """The reply that is being read."""

    options: dict[str, Any] = field(default_factory=dict)
    sections: list[_OpenSection] = field(default_factory=list)
    errors: list[ScriptedError] = field(default_factory=list)

    def close(self) -> ScriptedReply | None:
        """The reply; None where nothing was written."""
        if not self.sections and not self.errors:
            return None
        sections = tuple(filter(None, (section.close() for section in self.sections))) if self.sections else None
        return ScriptedReply(sections, errors=tuple(self.errors), **self.options)


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
        kind, options = marker[1], dict(_OPTION.findall(marker[2] or ""))
        if kind in _SECTION_OPTIONS:
            _begin_section(current, kind, options, number)
            continue
        if current.sections:
            replies.append(current.close())
            current = _Open()
        if kind == "error":
            current.errors.append(_error(options, number))
        else:
            current.options, current.sections = _reply_options(options, number), [_OpenSection("text")]
    replies.append(current.close())
    first = "\n".join(preface).strip("\n")
    before = ScriptedReply((ScriptedSection("text", first),)) if first.strip() else None
    return tuple(reply for reply in (before, *replies) if reply)


def _begin_section(current: _Open, kind: str, options: dict[str, str], number: int) -> None:
    if not current.sections:
        raise ScriptError(f"line {number}: begin a reply with `=== reply ===` before its {kind}")
    _check_known(options, _SECTION_OPTIONS[kind], number)
    if kind == "call" and not options.get("name"):
        raise ScriptError(f"line {number}: a call needs a name, such as `=== call name=get ===`")
    current.sections.append(_OpenSection(kind, options))


def _append(current: _Open, preface: list[str], line: str, number: int) -> None:
    if current.sections:
        current.sections[-1].lines.append(line)
    elif not current.errors:
        preface.append(line)
    elif line.strip():
        raise ScriptError(f"line {number}: text may not follow an error; begin a reply with `=== reply ===`")


def _reply_options(options: dict[str, str], number: int) -> dict[str, Any]:
    finish, cost = options.pop("finish", ""), options.pop("cost_usd", "")
    figures = _numbers(options, _REPLY_OPTIONS | _USAGE_OPTIONS, number)
    usage: dict[str, float] = {name: figures.pop(name) for name in _USAGE_OPTIONS & figures.keys()}
    if cost:
        if not _COST.fullmatch(cost):
            raise ScriptError(f"line {number}: cost_usd={cost} is not a number of US dollars, such as 0.0125")
        usage["cost_usd"] = float(cost)
    return {**figures, "finish": finish, "usage": usage}


def _check_known(options: Collection[str], known: Collection[str], number: int) -> None:
    for name in options:
        if name not in known:
            there = f"there are {', '.join(sorted(known))}" if known else "there are none"
            raise ScriptError(f"line {number}: {name} is not an option here; {there}")


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
    _check_known(options, known, number)
    for name, value in options.items():
        if not value.isdecimal() or int(value) > _NUMBER_MAX or (name == "chunk_chars" and int(value) == 0):
            raise ScriptError(
                f"line {number}: {name}={value} is not a number from {int(name == 'chunk_chars')} to {_NUMBER_MAX}"
            )
    return {name: int(value) for name, value in options.items()}
