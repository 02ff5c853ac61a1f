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
from collections.abc import Collection, Iterator
from typing import Final

from msgspec import Struct, field

from turnwright_core.json_text import JsonObject
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
    """A failure, and how many tries in a row end with it."""

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


def parse_script(text: str) -> tuple[ScriptedReply, ...]:
    """The replies of a script. Raises ScriptError."""
    replies: list[tuple[JsonObject, list[ScriptedSection] | None]] = []
    sections: list[ScriptedSection] | None = None
    errors: list[ScriptedError] = []
    for marker, number, lines in _marked(text):
        body = "\n".join(lines).strip("\n")
        if marker is None:
            if body.strip():
                replies.append(({}, [ScriptedSection("text", body)]))
            continue
        kind, options = marker[1], dict(_OPTION.findall(marker[2] or ""))
        if kind == "error":
            errors.append(_error(options, number, lines))
            sections = None
            continue
        if kind == "reply":
            sections = []
            replies.append(({**_reply_options(options, number), "errors": tuple(errors)}, sections))
            kind, options, errors = "text", {}, []
        if sections is None:
            raise ScriptError(f"line {number}: begin a reply with `=== reply ===` before its {kind}")
        section = _section(kind, body, options, number)
        sections += [section] if body or kind != "text" else []
    if errors:
        replies.append(({"errors": tuple(errors)}, None))
    return tuple(ScriptedReply(None if found is None else tuple(found), **options) for options, found in replies)


def _marked(text: str) -> Iterator[tuple[re.Match[str] | None, int, list[str]]]:
    """Each marker with its line and the lines below it; first those above all markers."""
    marker, begin, lines = None, 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if found := _LINE.fullmatch(line):
            yield marker, begin, lines
            marker, begin, lines = found, number, []
        else:
            lines.append(line)
    yield marker, begin, lines


def _section(kind: str, text: str, options: dict[str, str], number: int) -> ScriptedSection:
    _check_known(options, _SECTION_OPTIONS[kind], number)
    if kind == "call" and not options.get("name"):
        raise ScriptError(f"line {number}: a call needs a name, such as `=== call name=get ===`")
    return ScriptedSection(kind, text, options)


def _reply_options(options: dict[str, str], number: int) -> JsonObject:
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


def _error(options: dict[str, str], number: int, lines: list[str]) -> ScriptedError:
    if wrong := next((at for at, line in enumerate(lines, number + 1) if line.strip()), 0):
        raise ScriptError(f"line {wrong}: text may not follow an error; begin a reply with `=== reply ===`")
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
