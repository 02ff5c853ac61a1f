"""Native tool calls: a name and arguments become a Command.

The same rules serve calls that a vendor delivers as fields (`command_from_call`) and calls that a
model wrote into its text in a format it was trained on (`command_from_value`).

Source: RU282, RU285.
"""

from __future__ import annotations

import json
import re
from types import MappingProxyType

from turnwright_grammar.reply import Command, ReadWarning, Span
from turnwright_grammar.tools import DEFAULT_TOOLS, resolve
from turnwright_grammar.values import Value, read_value

BODY_NAMES = ("body", "content")
_NAME_KEYS = ("name", "tool_name", "tool", "function_name", "recipient_name", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "params", "kwargs", "action_input", "tool_input")
_NESTED_KEYS = ("function", "function_call")
_PREFIX = re.compile(r"(?:functions?|tools|default_api|print\(default_api)[.:/]")
_INDEX = re.compile(r":\d+\Z")


def command_from_call(
    name: str, arguments_json: str | None, known_tools: frozenset[str] = DEFAULT_TOOLS
) -> tuple[Command, tuple[ReadWarning, ...]]:
    """Return the command of a vendor's native call, and what had to be repaired.

    `arguments_json` may be None, empty, `null` or broken. `content` or `body` becomes the body, every
    other argument an attribute (non-strings as JSON, null left out). Warnings: `arguments_repaired`,
    `arguments_cut` (the text ended inside; the caller decides whether the call may run),
    `arguments_unreadable` (nothing could be read). Never raises.
    """
    text = (arguments_json or "").strip()
    span = (0, len(arguments_json or ""))
    if not text:
        return command_from_value(name, {}, span, known_tools), ()
    read = read_value(text)
    value = read.value if read else None
    warnings: list[ReadWarning] = []
    if read is None or (value is not None and not isinstance(value, dict | str | list)):
        warnings.append(ReadWarning("arguments_unreadable", f"The arguments of {name} are not a JSON object.", span))
        value = {}
    elif read.cut:
        warnings.append(ReadWarning("arguments_cut", f"The arguments of {name} end before they are complete.", span))
    elif read.repaired:
        warnings.append(ReadWarning("arguments_repaired", f"The arguments of {name} were broken JSON, repaired.", span))
    return command_from_value(name, value, span, known_tools), tuple(warnings)


def command_from_value(name: str, arguments: Value, span: Span, known_tools: frozenset[str]) -> Command:
    """Return the command of a call whose arguments are a value already; resolved if the tool is known."""
    name = clean_name(name)
    known = name.lower() in known_tools
    attributes, body = _divided(arguments)
    command = Command(name.lower() if known else name, MappingProxyType(attributes), body, span, known)
    return resolve(command)


def clean_name(name: str) -> str:
    """Return `name` without what vendors put around it (`functions.get:0` is `get`)."""
    return _INDEX.sub("", _PREFIX.sub("", name.strip(), count=1))


def text_of(value: Value) -> str:
    """Return an argument as attribute text: strings as they are, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _divided(arguments: Value) -> tuple[dict[str, str], str]:
    if isinstance(arguments, str):
        read = read_value(arguments) if arguments.lstrip().startswith("{") else None
        if read is None or not isinstance(read.value, dict):
            return {}, arguments
        arguments = read.value
    if isinstance(arguments, list):
        arguments = arguments[0] if len(arguments) == 1 else {}
    if not isinstance(arguments, dict):
        return {}, ""
    attributes = {key: text_of(value) for key, value in arguments.items() if value is not None}
    for name in BODY_NAMES:
        if name in attributes:
            return attributes, attributes.pop(name)
    return attributes, ""


def call_of(value: Value, *, wrapped: bool) -> tuple[str, Value] | None:
    """Return `(name, arguments)` when `value` has the shape of one call, else None.

    `wrapped` says that a vendor's token announced a call, so that looser shapes count:
    `{"get": {"path": "a"}}` and a name without arguments when nothing else is there.
    """
    if not isinstance(value, dict):
        return None
    for nested in _NESTED_KEYS:
        inner = value.get(nested)
        if isinstance(inner, dict) and (found := call_of(inner, wrapped=wrapped)):
            return found
    name = next((value[key] for key in (*_NAME_KEYS, "function") if isinstance(value.get(key), str)), None)
    key = next((key for key in _ARGUMENT_KEYS if key in value), None)
    if isinstance(name, str) and name.strip() and key is not None:
        return (name, value[key]) if _are_arguments(value[key], name) else None
    if wrapped and isinstance(name, str) and (rest := _flat_arguments(value)):
        return name, rest
    if wrapped and len(value) == 1:
        ((only, inner),) = value.items()
        if isinstance(inner, dict) and only not in (*_NAME_KEYS, *_ARGUMENT_KEYS):
            return only, inner
    return None


def _flat_arguments(value: dict[str, Value]) -> dict[str, Value]:
    """The arguments of `{"tool": "get", "path": "a"}`."""
    return {key: item for key, item in value.items() if key not in (*_NAME_KEYS, *_ARGUMENT_KEYS, "id", "type")}


def _are_arguments(value: Value, name: str) -> bool:
    if isinstance(value, str):
        return value.strip() in ("", "null") or value.lstrip().startswith("{") or clean_name(name) in DEFAULT_TOOLS
    if isinstance(value, dict) and value.get("type") == "object" and "properties" in value:
        # The definition of a tool, not a call of it.
        return False
    return value is None or isinstance(value, dict)


def calls_of(value: Value, *, wrapped: bool) -> list[tuple[str, Value]] | None:
    """Return the calls of an object or a list of objects; None when there is none at all."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    if isinstance(value, list):
        found = [call for item in value if (call := call_of(item, wrapped=wrapped))]
        return found or None
    one = call_of(value, wrapped=wrapped)
    return [one] if one else None
