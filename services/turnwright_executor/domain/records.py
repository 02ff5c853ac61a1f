"""Records of commands: their paths and targets.

Source: rows RU081, RU128, RU129, RU153; architecture 3 (slugs get a suffix, never one row).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from turnwright_core.text import free_path, slugify
from turnwright_grammar.reply import Command

# The attribute with a tool's target; None for tools without a target.
_TARGET_ATTRIBUTE: Final[dict[str, str | None]] = {
    "sh": "command",
    "env": "command",
    "ask_user": "question",
    **dict.fromkeys(("set_plan", "update_plan", "get_plan")),
    **dict.fromkeys(("think", "update", "undo")),
}
_LOG: Final = "log://"


def has_target(tool: str) -> bool:
    return _TARGET_ATTRIBUTE.get(tool, "path") is not None


def target_attribute(tool: str) -> str:
    """The attribute with the target; empty for a tool without one."""
    return _TARGET_ATTRIBUTE.get(tool, "path") or ""


def target_of(command: Command, attribute: str | None = None) -> str:
    """The target of a command: path, command or question; empty if there is none (RU129).

    `attribute` names the attribute of a plugin's tool; empty: none.
    """
    return command.attributes.get(target_attribute(command.name) if attribute is None else attribute, "")


def record_path(turn: int, command: Command, ordinal: int, taken: Container[str], attribute: str | None = None) -> str:
    """Path of a command's record, `log://turn_N/{tool}/{slug}`; if it is taken, with a suffix `+2`, `+3`, ...

    The slug is derived from the target (see `target_of`). Tools without a target are numbered, from 1.
    """
    slug = slugify(target_of(command, attribute)) or ordinal + 1
    return free_path(f"{_LOG}turn_{turn}/{slugify(command.name)}/{slug}", taken)


def error_path(turn: int, word: str, taken: Container[str]) -> str:
    """Path of an error that belongs to no command, `log://turn_N/error/{slug}` (RU153, C3)."""
    return free_path(f"{_LOG}turn_{turn}/error/{slugify(word) or 'error'}", taken)


def error_path_of(record: str) -> str:
    """Path of an error about a command: `log://turn_1/error/get/a.txt` for the record `log://turn_1/get/a.txt`."""
    folder, _, rest = record.removeprefix(_LOG).partition("/")
    return f"{_LOG}{folder}/error/{rest}"
