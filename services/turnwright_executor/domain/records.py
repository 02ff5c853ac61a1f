"""Records of commands: their paths and targets.

Source: rows RU081, RU128, RU129, RU153; architecture 3 (slugs get a suffix, never one row).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from turnwright_core.text import free_path, slugify
from turnwright_core.tools import OF_AGENTS
from turnwright_grammar.reply import Command

_TARGET_ATTRIBUTE: Final[dict[str, str]] = {
    "sh": "command",
    "env": "command",
    "ask_user": "question",
    **dict.fromkeys(("set_plan", "update_plan", "get_plan", "think", "update", "undo", *OF_AGENTS), ""),
}
"""The attribute with a tool's target where it is not `path`; empty for tools without a target."""
RESULT: Final = "result"
"""Folder, and scheme, of what tools of servers are asked and say: `server.tool` can be no scheme."""
_LOG: Final = "log://"


def target_attribute(tool: str, others: Mapping[str, str]) -> str:
    """The attribute with the target; empty for a tool without one. `others`: of tools that are not the runtime's."""
    return others[tool] if tool in others else _TARGET_ATTRIBUTE.get(tool, "path")


def target_of(command: Command, others: Mapping[str, str]) -> str:
    """The target of a command: path, command, question or the like; empty if there is none (RU129)."""
    return command.attributes.get(target_attribute(command.name, others), "")


def record_path(turn: int, tool: str, target: str, ordinal: int, taken: Container[str]) -> str:
    """Path of a command's record, `log://turn_N/{tool}/{slug}`; if it is taken, with a suffix `+2`, `+3`, ...

    The slug is derived from the target. Commands without one are numbered, from 1.
    """
    return free_path(f"{_LOG}turn_{turn}/{record_name(tool, target, str(ordinal + 1))}", taken)


def record_name(tool: str, target: str, otherwise: str) -> str:
    """The end of a record's path; `otherwise` is for commands without a target."""
    folder = f"{RESULT}/{slugify(tool)}" if "." in tool else slugify(tool)
    return f"{folder}/{slugify(target) or otherwise}"


def own_call_id(turn: int, ordinal: int) -> str:
    """Our id of a call: vendors repeat theirs, or leave them out (C41)."""
    return f"call_{turn}_{ordinal}"


def error_path(turn: int, word: str, taken: Container[str]) -> str:
    """Path of an error that belongs to no command, `log://turn_N/error/{slug}` (RU153, C3)."""
    return free_path(f"{_LOG}turn_{turn}/error/{slugify(word) or 'error'}", taken)


def error_path_of(record: str) -> str:
    """Path of an error about a command: `log://turn_1/error/get/a.txt` for the record `log://turn_1/get/a.txt`."""
    folder, _, rest = record.removeprefix(_LOG).partition("/")
    return f"{_LOG}{folder}/error/{rest}"
