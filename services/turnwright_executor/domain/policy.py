"""The gate before RECORD: refuses unknown tools, bad targets, and changes in ask mode.

Each rule looks at one command and returns a refusal or None; the first refusal counts. The rules are filters of the
chain `entry.recording` (`hooks.plugins`), like those of plugins. Source: rows RU008, RU129, RU130, RU159, RU160;
decisions C2, C26.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import Struct, field

from turnwright_core.limits import TARGET_CHARS_MAX
from turnwright_core.runs import Mode
from turnwright_core.text import scheme_of
from turnwright_executor.domain.records import target_attribute
from turnwright_executor.domain.toolset import TOOL_ORDER, ToolDescriptor
from turnwright_grammar.reply import Command


class Refusal(Struct, frozen=True):
    """Why a command is refused: `outcome` is `word:code`, `body` tells the model what to do instead."""

    outcome: str
    body: str


class PolicyInput(Struct, frozen=True):
    """A command, with the mode and tools of its loop."""

    command: Command
    mode: Mode
    tools: Collection[str]
    plugin_tools: Mapping[str, ToolDescriptor] = field(default_factory=dict)
    """By name, whether the loop offers them or not."""

    @property
    def target(self) -> str:
        """The attribute with the command's target; empty if its tool has none."""
        name = self.command.name
        return self.plugin_tools[name].target if name in self.plugin_tools else target_attribute(name)


def refusal(
    command: Command, mode: Mode, tools: Collection[str], plugin_tools: Mapping[str, ToolDescriptor] | None = None
) -> Refusal | None:
    """Check a command in a loop with this mode and these tools; None: it is allowed."""
    case = PolicyInput(command, mode, tools, plugin_tools or {})
    return next((found for _, rule in GATE if (found := rule(case))), None)


_OFF: Final = frozenset({"false", "0", "no", "off"})


def is_flagged(command: Command, *names: str) -> bool:
    """Whether a flag such as `preview` is set: present, and not false."""
    flags = [command.attributes[name].lower() for name in names if name in command.attributes]
    return not _OFF.issuperset(flags)


def _unknown_tool(case: PolicyInput) -> Refusal | None:
    if case.command.name in TOOL_ORDER or case.command.name in case.plugin_tools or case.command.name in case.tools:
        return None
    return Refusal("not_found:404", f"There is no tool <{case.command.name}>. The tools are {_listed(case.tools)}.")


def _unavailable_tool(case: PolicyInput) -> Refusal | None:
    if case.command.name in case.tools:
        return None
    place = "in ask mode" if case.mode is Mode.ASK else "in this loop"
    return Refusal(
        "permission:403", f"<{case.command.name}> is not available {place}. The tools are {_listed(case.tools)}."
    )


_NEEDS: Final = {
    "search": "<search> needs words to look for: <search>sqlite busy timeout</search>.",
    "sh": "<sh> needs a command: <sh>make test</sh>.",
    "env": "<env> needs a command: <env>git log -5</env>.",
}
"""Error texts for tools whose commands need a body."""

_CONTROLS: Final = re.compile(r"[\0-\x1f\x7f-\x9f]")
_CONTROLS_IN_SCRIPT: Final = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Without line breaks and tabs."""


def _bad_target(case: PolicyInput) -> Refusal | None:
    name, what = case.command.name, case.target
    if not what:
        return None
    for attribute in (what, "to"):
        value = case.command.attributes.get(attribute, "")
        if fault := _fault_of(value, lines_allowed=attribute == "command"):
            return Refusal("invalid:400", f"The {attribute} of <{name}> {fault}")
    if not case.command.attributes.get(what, "").strip():
        return Refusal("invalid:400", _NEEDS.get(name, f'<{name}> needs a {what}: <{name} {what}="..."/>.'))
    return None


def _fault_of(value: str, *, lines_allowed: bool) -> str:
    # Reasoning that leaked into an attribute is long or has line breaks; a shell script may have line breaks.
    if len(value) > TARGET_CHARS_MAX:
        advice = " Put a long script into a file with <set> and run the file." if lines_allowed else ""
        return f"has {len(value)} characters; at most {TARGET_CHARS_MAX} are allowed.{advice}"
    if (_CONTROLS_IN_SCRIPT if lines_allowed else _CONTROLS).search(value):
        return "holds control characters or line breaks. Write one plain line."
    return ""


def _changes_in_ask_mode(case: PolicyInput) -> Refusal | None:
    if case.mode is not Mode.ASK:
        return None
    changed = next((path for path in _FILES_CHANGED_BY.get(case.command.name, _nothing)(case.command)), None)
    if changed is None:
        return None
    return Refusal(
        "permission:403",
        f"Ask mode is read-only: <{case.command.name}> may not change the file {changed}. "
        "Answer in <update>, or keep the text in an entry such as known://...",
    )


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


Rule = Callable[[PolicyInput], Refusal | None]

GATE: Final[tuple[tuple[int, Rule], ...]] = (
    (10, _unknown_tool),
    (20, _unavailable_tool),
    (30, _bad_target),
    (40, _changes_in_ask_mode),
)
"""The rules with their priorities in the chain."""
