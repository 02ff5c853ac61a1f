"""The gate before RECORD: refuses unknown tools, bad targets, and changes in ask mode.

Each rule looks at one command that is about to be recorded and may refuse it; the first refusal counts. The rules are
filters of the chain `entry.recording`, like those of plugins. Source: rows RU008, RU129, RU130, RU159, RU160;
decisions C2, C26.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import Mode

from turnwright_core.limits import TARGET_CHARS_MAX
from turnwright_core.text import scheme_of
from turnwright_core.tools import TOOL_ORDER
from turnwright_executor.domain.addresses import TurnAddress
from turnwright_executor.domain.records import target_attribute
from turnwright_grammar.reply import Command

OUTCOME_CHARS_MAX: Final = 64
"""Longest outcome that a filter may give, in characters."""


def check_refusal(outcome: str, body: str) -> None:
    """Raises ValueError for an invalid refusal: it needs an outcome `word:code` and a sentence for the model."""
    word, _, code = outcome.rpartition(":")
    is_code = len(code) == 3 and code.isascii() and code.isdecimal() and code[0] in "45"
    if not word or len(outcome) > OUTCOME_CHARS_MAX or not is_code:
        raise ValueError(f"an outcome must be `word:code`, such as permission:403; it is {outcome!r}")
    if not (are_storable(body) and body.strip()):
        raise ValueError("a refusal says in its body, in text that UTF-8 can hold, what to do instead")


def are_storable(*texts: str) -> bool:
    try:
        "".join(texts).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


class Recording(Struct, frozen=True):
    """The value of `entry.recording`: a command that is about to be recorded.

    A filter may replace the command (`with_command`) or refuse it (`refused`). A refused command is recorded as failed
    and never dispatched; no later filter sees it. `outcome` is empty unless it was refused.
    """

    command: Command
    outcome: str = ""
    body: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a command that no record can hold."""
        if self.outcome:
            check_refusal(self.outcome, self.body)
        command = self.command
        if not command.name or not are_storable(
            command.name, command.body, *command.attributes.keys(), *command.attributes.values()
        ):
            raise ValueError("a command has a name, and its attributes and body are text that UTF-8 can hold")

    @property
    def is_refused(self) -> bool:
        return bool(self.outcome)

    def refused(self, outcome: str, body: str) -> Recording:
        """The command, refused: `outcome` is `word:code`, `body` tells the model what to do instead."""
        return replace(self, outcome=outcome, body=body)

    def with_command(self, command: Command) -> Recording:
        """Replace the command. The new one must pass the runtime's own gate like any other."""
        return replace(self, command=command)


class RecordingContext(Struct, frozen=True):
    """The context of `entry.recording`: the turn, its mode and tools, the command's place in the reply (from 0).

    `principal` is the client that called the command with CallTool; empty for a command of the model.
    """

    at: TurnAddress
    mode: Mode
    tools: tuple[str, ...]
    ordinal: int
    principal: str = ""
    targets: Mapping[str, str] = {}
    """The attribute with the target of a command, by tool of a plugin or client; empty: it has none."""


_OFF: Final = frozenset({"false", "0", "no", "off"})


def is_flagged(command: Command, *names: str) -> bool:
    """Whether a flag such as `preview` is set: present, and not false."""
    flags = [command.attributes[name].lower() for name in names if name in command.attributes]
    return not _OFF.issuperset(flags)


def _unknown_tool(value: Recording, context: RecordingContext) -> Recording:
    name = value.command.name
    if name in TOOL_ORDER or name in context.targets or name in context.tools:
        return value
    return value.refused("not_found:404", f"There is no tool <{name}>. The tools are {_listed(context.tools)}.")


def _unavailable_tool(value: Recording, context: RecordingContext) -> Recording:
    name = value.command.name
    if name in context.tools:
        return value
    place = "in ask mode" if context.mode is Mode.ASK else "in this loop"
    body = f"<{name}> is not available {place}. The tools are {_listed(context.tools)}."
    return value.refused("permission:403", body)


_NEEDS: Final = {
    "search": "<search> needs words to look for: <search>sqlite busy timeout</search>.",
    "sh": "<sh> needs a command: <sh>make test</sh>.",
    "env": "<env> needs a command: <env>git log -5</env>.",
}
"""Error texts for tools whose commands need a body."""

_CONTROLS: Final = re.compile(r"[\0-\x1f\x7f-\x9f]")
_CONTROLS_IN_SCRIPT: Final = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Without line breaks and tabs."""


def _bad_target(value: Recording, context: RecordingContext) -> Recording:
    name, attributes = value.command.name, value.command.attributes
    what = target_attribute(name, context.targets)
    if not what:
        return value
    for attribute in [one for one in (what, "to") if one in attributes]:
        if fault := _fault_of(attributes[attribute], lines_allowed=attribute == "command"):
            return value.refused("invalid:400", f"The {attribute} of <{name}> {fault}")
    if not attributes.get(what, "").strip():
        return value.refused("invalid:400", _NEEDS.get(name, f'<{name}> needs a {what}: <{name} {what}="..."/>.'))
    return value


def _fault_of(value: str, *, lines_allowed: bool) -> str:
    # Reasoning that leaked into an attribute is long or has line breaks; a shell script may have line breaks.
    if len(value) > TARGET_CHARS_MAX:
        advice = " Put a long script into a file with <set> and run the file." if lines_allowed else ""
        return f"has {len(value)} characters; at most {TARGET_CHARS_MAX} are allowed.{advice}"
    if (_CONTROLS_IN_SCRIPT if lines_allowed else _CONTROLS).search(value):
        return "holds control characters or line breaks. Write one plain line."
    return ""


def _changes_in_ask_mode(value: Recording, context: RecordingContext) -> Recording:
    name = value.command.name
    if context.mode is not Mode.ASK or not (changed := files_changed_by(value.command)):
        return value
    return value.refused(
        "permission:403",
        f"Ask mode is read-only: <{name}> may not change the file {changed[0]}. "
        "Answer in <update>, or keep the text in an entry such as known://...",
    )


def files_changed_by(command: Command) -> list[str]:
    """The files, or patterns over files, that a command of the runtime is to change."""
    return _FILES_CHANGED_BY.get(command.name, _nothing)(command)


def _nothing(_command: Command) -> list[str]:
    return []


def _set_files(command: Command) -> list[str]:
    # Visibility and summary are the model's own view of a file, so they may be changed.
    return _files(command.attributes.get("path", "")) if command.body else []


def _removed_files(command: Command) -> list[str]:
    return [] if is_flagged(command, "preview", "manifest") else _files(command.attributes.get("path", ""))


def _copied_files(command: Command) -> list[str]:
    return [] if is_flagged(command, "preview", "manifest") else _files(command.attributes.get("to", ""))


def _moved_files(command: Command) -> list[str]:
    return [*_removed_files(command), *_copied_files(command)]


_FILES_CHANGED_BY: Final[dict[str, Callable[[Command], list[str]]]] = {
    "set": _set_files,
    "rm": _removed_files,
    "cp": _copied_files,
    "mv": _moved_files,
}


def _files(path: str) -> list[str]:
    """The path, if it names a file or a pattern over files."""
    return [path] if path and scheme_of(path) is None else []


def _listed(tools: Collection[str]) -> str:
    return ", ".join(f"<{name}>" for name in tools)


Rule = Callable[[Recording, RecordingContext], Recording]

GATE: Final[tuple[tuple[int, Rule], ...]] = (
    (10, _unknown_tool),
    (20, _unavailable_tool),
    (30, _bad_target),
    (40, _changes_in_ask_mode),
)
"""The rules with their priorities in the chain."""
