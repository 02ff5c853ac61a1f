"""The records of commands: where they stand, and what they are about.

Source: rows RU081, RU128, RU129, RU153; architecture 3 (slugs get a suffix, never one row).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from turnwright_core.text import slugify
from turnwright_grammar import Command

# Where a tool's target stands among its attributes; None for tools that have no target.
_TARGET_ATTRIBUTE: Final[dict[str, str | None]] = {
    "sh": "command",
    "env": "command",
    "ask_user": "question",
    **dict.fromkeys(("set_plan", "update_plan", "get_plan")),
    "think": None,
    "update": None,
}
_LOG: Final = "log://"


def has_target(tool: str) -> bool:
    return _TARGET_ATTRIBUTE.get(tool, "path") is not None


def target_attribute(tool: str) -> str:
    """The attribute that holds the target; empty for a tool without one."""
    return _TARGET_ATTRIBUTE.get(tool, "path") or ""


def target_of(command: Command, attribute: str | None = None) -> str:
    """What a command is about: exactly one of path, command, question; empty when absent (RU129).

    `attribute` names what holds it for a tool of a plugin; empty: nothing does.
    """
    return command.attributes.get(target_attribute(command.name) if attribute is None else attribute, "")


def record_path(turn: int, command: Command, ordinal: int, taken: Container[str], attribute: str | None = None) -> str:
    """`log://turn_N/{tool}/{slug}` of a command; a path that is taken gets `+2`, `+3`, ...

    The slug is that of the target (see `target_of`). Tools without a target are numbered, from 1.
    """
    slug = slugify(target_of(command, attribute)) or ordinal + 1
    return free_path(f"{_LOG}turn_{turn}/{slugify(command.name)}/{slug}", taken)


def error_path(turn: int, word: str, taken: Container[str]) -> str:
    """`log://turn_N/error/{slug}` of an error that belongs to no command (RU153, C3)."""
    return free_path(f"{_LOG}turn_{turn}/error/{slugify(word) or 'error'}", taken)


def error_path_of(record: str) -> str:
    """Where an error about a command stands: `log://turn_1/error/get/a.txt` for the record `log://turn_1/get/a.txt`."""
    folder, _, rest = record.removeprefix(_LOG).partition("/")
    return f"{_LOG}{folder}/error/{rest}"


def free_path(path: str, taken: Container[str]) -> str:
    """The path, or the first of `path+2`, `path+3`, ... that is not taken. A slug never holds a plus itself."""
    suffix, candidate = 1, path
    while candidate in taken:
        suffix += 1
        candidate = f"{path}+{suffix}"
    return candidate
