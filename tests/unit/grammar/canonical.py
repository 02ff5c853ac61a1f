"""Commands written as a careful model writes them: the inverse of the reader, for the tests of properties."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from msgspec.structs import replace

from turnwright_grammar.reply import Command
from turnwright_grammar.tools import DEFAULT_TOOLS

_NAME = re.compile(r"[a-z_][a-z0-9_\-]*")
_SAFE_NAME = re.compile(r"[A-Za-z_][\w\-]*")
_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\\": "&#92;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
)
# Their bodies may begin with what looks like parameters as tags.
_OPAQUE = frozenset({"think", "update"})
# Their bodies end at any tool's tag.
_SHORT = frozenset({"get", "rm", "mv", "cp"})


def written(commands: Iterable[Command]) -> str:
    """Return a reply that asks for exactly these commands, each beginning a line."""
    return "".join(as_tag(one) + "\n" if fits_tag(one) else as_call(one) + "\n" for one in commands)


def unplaced(commands: Iterable[Command]) -> list[Command]:
    """Return the commands without what writing anew does not keep: spans, and the types of a native call's arguments."""
    return [replace(one, span=(0, 0), json_names=(), body_name="") for one in commands]


def is_writable(command: Command) -> bool:
    """Return whether one of the two forms can say it: a call has its `body` among its arguments."""
    safe = _SAFE_NAME.fullmatch(command.name) is not None
    return fits_tag(command) or (safe and "body" not in command.attributes and not _defines(command))


def _defines(command: Command) -> bool:
    # The arguments of a tool's definition, not of a call.
    return command.attributes.get("type") == "object" and "properties" in command.attributes


def fits_tag(command: Command) -> bool:
    """Return whether our own tags can say it: a known tool whose body holds no tag that would end it."""
    if not command.known or not all(_NAME.fullmatch(name) for name in command.attributes):
        return False
    if _tag_of(DEFAULT_TOOLS if command.name in _SHORT else {command.name}).search(command.body):
        return False
    looks_like_parameters = command.body.lstrip().startswith("<") and "path" not in command.attributes
    return command.name in _OPAQUE or not looks_like_parameters


def _tag_of(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"<\s*/?\s*(?:{'|'.join(sorted(names))})\b", re.IGNORECASE)


def as_tag(command: Command) -> str:
    """Return `<name key="value">body</name>`."""
    attributes = "".join(f' {name}="{value.translate(_ESCAPES)}"' for name, value in command.attributes.items())
    if not command.body and command.name != "set":
        return f"<{command.name}{attributes}/>"
    return f"<{command.name}{attributes}>{command.body}</{command.name}>"


def as_call(command: Command) -> str:
    """Return a `<tool_call>` with JSON."""
    arguments = {**command.attributes, "body": command.body}
    call = json.dumps({"name": command.name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>{call}</tool_call>"
