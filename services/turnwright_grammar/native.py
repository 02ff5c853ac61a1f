"""Native tool calls: a name and arguments become commands.

The same rules serve calls that a vendor delivers as fields (`commands_from_call`) and calls that a
model wrote into its text in a format it was trained on (`command_from_value`).

Source: RU282, RU285.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from turnwright_grammar.reply import Command, ReadWarning, Span
from turnwright_grammar.tools import DEFAULT_TOOLS, resolve
from turnwright_grammar.values.lenient import read_value
from turnwright_grammar.values.repair import read_all
from turnwright_grammar.values.strict import STRICT, Value, compact_json

# The arguments of a native call, as hosts send them: one object, or what went wrong on its way.
#
# | sent | read as |
# |---|---|
# | `{"path":"a"}` | the object |
# | broken, fenced, with a vendor's token after it | the object, repaired |
# | `{}{"path":"a"}` | the second: the host announced the call with an empty object |
# | `{"path":"a"}{"path":"a"}` | the object once: the host sent the whole again |
# | `{"pa{"path":{"path":"a"}` | the last: each piece repeats all before it |
# | `{"path":"a"}{"path":"b"}`, a list of objects | both, of which no call is made: whose they are is unknown |
# | `"{\"path\":\"a\"}"` | the object in the string, encoded once more or oftener |
#
# Tools and commands are not known here.

ENCODINGS_MAX = 4
"""How often JSON in a string in JSON is opened."""

_OBJECT_START = re.compile(r"\s*\{\s*(?:\\*[\"'\u201c]|[A-Za-z_]\w{0,80}\s{0,80}[:=]|\}\s*\Z)")
_NOTHING = re.compile(r"[\s}\]),;`.]*")
_PIECES_TRIED_MAX = 1_024


class ReadArguments(Struct, frozen=True):
    """The objects that were sent, or the one string; empty when the call has no arguments.

    `over`: text is left over behind a value, which may have been meant to be part of it.
    """

    values: tuple[Value, ...]
    repaired: bool = False
    cut: bool = False
    over: bool = False


def read_arguments(text: str) -> ReadArguments | None:
    """Return the arguments in `text`, or None when it holds neither an object nor a string. Never raises."""
    for start in (0, _last_piece(text)):
        try:
            return _objects_among([STRICT.decode(text[start:])], repaired=start > 0)
        except (ValueError, RecursionError):
            continue
    reads = read_all(text)
    if len(reads) > 1 and reads[-1].cut and text.startswith(text[reads[-2].end :].strip()):
        # The whole was sent again, and the end of that is missing.
        reads = reads[:-1]
    if not reads:
        return None
    found = _objects_among([read.value for read in reads], repaired=True, cut=reads[-1].cut)
    return found and replace(found, over=any(read.over or _has_text_left(text, read.end) for read in reads))


def object_in(text: str) -> dict[str, Value] | None:
    """Return the object that a string holds as JSON, broken or encoded repeatedly, or None. Never raises."""
    value: Value = text
    for _ in range(ENCODINGS_MAX):
        if isinstance(value, str):
            value = _decoded(value)
    return value if isinstance(value, dict) else None


def _decoded(text: str) -> Value:
    try:
        value: Value = STRICT.decode(text)
    except (ValueError, RecursionError):
        read = read_value(text, full_lookahead=True) if _OBJECT_START.match(text) else None
        value = read.value if read else None
    return value


def _objects_among(found: list[Value], *, repaired: bool = False, cut: bool = False) -> ReadArguments | None:
    """Keep the objects; a string counts where there is no object, anything else makes it no arguments."""
    values = [item for value in found for item in (value if isinstance(value, list) else [value])]
    values = [opened for value in values for opened in _opened(value)]
    values = [value for value in values if value not in (None, {}, [], "")]
    objects: list[Value] = [value for value in values if isinstance(value, dict)]
    if not objects and values:
        if len(values) > 1 or not isinstance(values[0], str):
            return None
        objects = values
    # Compared as text: comparing values that are nested deep would recurse.
    distinct: dict[str, Value] = {}
    for value in objects:
        distinct.setdefault(compact_json(value), value)
    return ReadArguments(tuple(distinct.values()), repaired, cut)


def _opened(value: Value) -> tuple[Value, ...]:
    """What a string holds as JSON: an object, or several one after another."""
    inner = object_in(value) if isinstance(value, str) else None
    if inner is None or not isinstance(value, str):
        return (value,)
    read = read_arguments(value)
    return read.values if read and len(read.values) > 1 else (inner,)


def _has_text_left(text: str, end: int) -> bool:
    """Whether something stands behind a value that is neither a closer, another value nor a vendor's token."""
    following = _NOTHING.match(text, end).end()  # type: ignore[union-attr]
    return following < len(text) and not text.startswith(("{", "[", "<"), following)


def _last_piece(text: str) -> int:
    """Where the last of several pieces begins each of which repeats all before it; 0 when it is one piece."""
    start = position = 0
    for _ in range(_PIECES_TRIED_MAX if text.startswith("{") else 0):
        position = text.find("{", position + 1)
        if position < 0 or position - start > len(text) - position:
            break
        if text.startswith(text[start:position], position):
            start = position
    return start


RISKY = frozenset({"sh", "env", "rm", "set", "mv", "cp"})
"""Tools that are not run if text was left over when their arguments were parsed. Source: C56."""

LEFT_OVER = "Text was left over behind the arguments of {name}, so it was not run. Escape the quotes inside strings."

JOINED = "{name} was called with several objects as its arguments, so it was not run. Make one call for each."

BODY_NAMES = ("body", "content")
WRAPS_MAX = 3
"""The depth of wrappers (`{"arguments": {...}}`) around the arguments."""

_NAME_KEYS = ("name", "tool_name", "tool", "function_name", "recipient_name", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "params", "kwargs", "action_input", "tool_input")
_ONLY_ARGUMENT_KEYS = frozenset({"input", "tool_input", "action_input", "argument", "arg", "__arg1"})
_ONE_ARGUMENT_TOOLS = frozenset({"get", "rm", "sh", "env", "search", "skill", "think", "ask_user", "update"})
# What stands beside a name in a list of tools, and in no call.
_DEFINES = frozenset({"description", "input_schema", "inputSchema"})
_SCHEMA_KEYS = frozenset({"type", "properties", "required", "additionalProperties", "$schema", "title", "description"})
_NESTED_KEYS = ("function", "function_call", "functionCall", "toolUse")
_PREFIX = re.compile(r"(?:(?:functions?|tools|default_api|print\(default_api)(?:::|[.:/]))+")
_ADDED_PREFIX = re.compile(r"(?:tool|call|api|multi_tool_use)[.:/]|/")
_INDEX = re.compile(r":\d+\Z")
_ADDED_SUFFIX = re.compile(r"(?:[<\[(].*|[#/:.]\d+|[\"'`\s])\Z", re.DOTALL)


def commands_from_call(
    name: str, arguments_json: str | None, known_tools: frozenset[str] = DEFAULT_TOOLS
) -> tuple[tuple[Command, ...], tuple[ReadWarning, ...]]:
    """Return the commands of a vendor's native call, and what had to be repaired.

    That is always one command. `arguments_json` may be None, empty, `null` or broken. `content` or `body` becomes the
    body, every other argument an attribute (non-strings as JSON, null left out). Warnings:
    `arguments_repaired`,
    `arguments_joined` (objects that differ, one after another: a host may have merged calls of several tools, so the
    call may not run; C60),
    `arguments_left_over` (text stands behind them that may belong to them, and the tool is risky: the call may not
    run), `arguments_cut` (the text ended inside; the caller decides whether the call may run), `arguments_unreadable`
    (nothing could be read, the command has no arguments). Never raises.
    """
    text = (arguments_json or "").strip()
    span = (0, len(arguments_json or ""))
    read = read_arguments(text) if text else None
    values = read.values if read and read.values else ({},)
    commands = (command_from_value(name, values[0], span, known_tools),)
    if len(values) > 1:
        return commands, (ReadWarning("arguments_joined", JOINED.format(name=name), span, lost=commands),)
    if text and read is None:
        message = f"The arguments of {name} are not a JSON object."
        return commands, (ReadWarning("arguments_unreadable", message, span, lost=commands),)
    if read and read.over and commands[0].name in RISKY:
        return commands, (ReadWarning("arguments_left_over", LEFT_OVER.format(name=name), span, lost=commands),)
    if read and read.cut:
        message = f"The arguments of {name} end before they are complete."
        lost = (cut_command(name, values[0], span, known_tools),)
        return commands, (ReadWarning("arguments_cut", message, span, lost=lost),)
    if read and read.repaired:
        return commands, (
            ReadWarning("arguments_repaired", f"The arguments of {name} were broken JSON, repaired.", span),
        )
    return commands, ()


def command_from_value(name: str, arguments: Value, span: Span, known_tools: frozenset[str]) -> Command:
    """Return the command of a call whose arguments are a value already; resolved if the tool is known."""
    # A command without a name would make a record that no later request could send back.
    name = tool_name(name, known_tools) or name.strip() or "unknown"
    known = name in known_tools
    unwrapped = _unwrapped(arguments, name, known_tools)
    attributes, body, body_name = _split_arguments(unwrapped)
    return resolve(
        Command(name, MappingProxyType(attributes), body, span, known, _typed_arguments(unwrapped), body_name)
    )


def cut_command(name: str, arguments: Value, span: Span, known_tools: frozenset[str]) -> Command:
    """Return what is certain of a call whose arguments were cut off: all but the last of them."""
    whole = dict(list(arguments.items())[:-1]) if isinstance(arguments, dict) else {}
    return replace(command_from_value(name, whole, span, known_tools), name=tool_name(name, known_tools))


def clean_name(name: str) -> str:
    """Return `name` without what vendors put around it (`functions.get:0` is `get`)."""
    return _INDEX.sub("", _PREFIX.sub("", name.strip(), count=1))


def tool_name(name: str, known_tools: frozenset[str]) -> str:
    """Return the known tool that `name` means, in lower case, or `name` cleaned when it means none.

    `getget` is `get`: some hosts send the name with every piece of a call, and clients join them.
    """
    cleaned = clean_name(name)
    once = _without_repetition(name.strip())
    bare = _ADDED_PREFIX.sub("", _ADDED_SUFFIX.sub("", cleaned).strip("\"'` "), count=1)
    for candidate in (cleaned, clean_name(once), bare, _without_repetition(bare)):
        # Vendors allow no dot: `server__tool` is `server.tool`.
        for spelling in (candidate.lower(), candidate.lower().replace("__", ".", 1)):
            if spelling in known_tools:
                return spelling
    return cleaned


def _without_repetition(name: str) -> str:
    """What `name` repeats, or `name` itself."""
    period = (name + name).find(name, 1)
    return name[:period]


def text_of(value: Value) -> str:
    """Return an argument as attribute text: strings as they are, everything else as compact JSON."""
    return value if isinstance(value, str) else compact_json(value)


def _unwrapped(arguments: Value, name: str, known_tools: frozenset[str]) -> Value:
    """Take off wrappers that models and hosts put around the arguments of one of our tools once more."""
    if isinstance(arguments, str) and (found := object_in(arguments)) is not None:
        arguments = found
    if isinstance(arguments, list) and len(arguments) == 1:
        arguments = arguments[0]
    for _ in range(WRAPS_MAX):
        inner = _inner(arguments, name, known_tools) if isinstance(arguments, dict) else None
        if inner is None:
            break
        arguments = inner
    return arguments


def _inner(arguments: dict[str, Value], name: str, known_tools: frozenset[str]) -> Value:
    """The arguments in a wrapper, or None when there is no wrapper.

    An unknown tool may well have one parameter that is called `input`: there a wrapper has to say the name.
    """
    rest = {key: value for key, value in arguments.items() if key not in (*_NAME_KEYS, "id", "type")}
    named = next((arguments[key] for key in _NAME_KEYS if isinstance(arguments.get(key), str)), None)
    is_ours = tool_name(named, known_tools) == name if isinstance(named, str) else name in known_tools
    if not is_ours or (named is None and len(rest) < len(arguments)):
        return None
    if isinstance(rest.get("attributes"), dict) and rest.keys() <= {"attributes", *BODY_NAMES}:
        attributes = rest.pop("attributes")
        return {**attributes, **rest} if isinstance(attributes, dict) else None
    if len(rest) != 1:
        return None
    ((key, value),) = rest.items()
    if key in _ARGUMENT_KEYS and (inner := object_in(value) if isinstance(value, str) else value) is not None:
        return inner if isinstance(inner, dict) else None
    return value if key in _ONLY_ARGUMENT_KEYS and isinstance(value, str) and name in _ONE_ARGUMENT_TOOLS else None


def _split_arguments(arguments: Value) -> tuple[dict[str, str], str, str]:
    """Attributes, body, and the argument that the body was where that is not `body`."""
    if isinstance(arguments, str):
        return {}, arguments, ""
    if not isinstance(arguments, dict):
        return {}, "", ""
    attributes = {key.strip() or key: text_of(value) for key, value in arguments.items() if value is not None}
    for name in BODY_NAMES:
        if name in attributes:
            return attributes, attributes.pop(name), "" if name == BODY_NAMES[0] else name
    return attributes, "", ""


def _typed_arguments(arguments: Value) -> tuple[str, ...]:
    """The arguments that are neither text nor null."""
    if not isinstance(arguments, dict):
        return ()
    return tuple(key.strip() or key for key, value in arguments.items() if not isinstance(value, str | None))


def parse_call(value: Value, *, wrapped: bool) -> tuple[str, Value] | None:
    """Return `(name, arguments)` when `value` has the shape of one call, else None.

    `wrapped` says that a vendor's token announced a call, so that looser shapes count:
    `{"get": {"path": "a"}}` and a name without arguments when nothing else is there.
    """
    if not isinstance(value, dict) or not _DEFINES.isdisjoint(value):
        return None
    for nested in _NESTED_KEYS:
        inner = value.get(nested)
        if isinstance(inner, dict) and (found := parse_call(inner, wrapped=wrapped)):
            return found
    name = next((value[key] for key in (*_NAME_KEYS, "function") if isinstance(value.get(key), str)), None)
    key = next((key for key in _ARGUMENT_KEYS if key in value), None)
    if isinstance(name, str) and name.strip() and key is not None:
        return (name, value[key]) if _are_arguments(value[key], name) else None
    if wrapped and isinstance(name, str) and (rest := _flat_arguments(value)):
        return name, rest
    if wrapped and len(value) == 1:
        ((only, inner),) = value.items()
        if isinstance(inner, dict) and only.strip() and only not in (*_NAME_KEYS, *_ARGUMENT_KEYS):
            return only, inner
    return None


def _flat_arguments(value: dict[str, Value]) -> dict[str, Value]:
    """The arguments of `{"tool": "get", "path": "a"}`."""
    around = (*_NAME_KEYS, *_NESTED_KEYS, *_ARGUMENT_KEYS, "id", "type")
    return {key: item for key, item in value.items() if key not in around}


def _are_arguments(value: Value, name: str) -> bool:
    if isinstance(value, str):
        return value.strip() in ("", "null") or value.lstrip().startswith("{") or clean_name(name) in DEFAULT_TOOLS
    if isinstance(value, dict) and _defines_parameters(value):
        return False
    if isinstance(value, list):
        return len(value) == 1 and isinstance(value[0], dict)
    return value is None or isinstance(value, dict)


def _defines_parameters(value: dict[str, Value]) -> bool:
    """Whether arguments are the definition of a tool, echoed from its list, and not those of a call."""
    if isinstance(value.get("properties"), dict) and not value.keys() - _SCHEMA_KEYS:
        return True
    return bool(value) and all(isinstance(one, dict) and isinstance(one.get("type"), str) for one in value.values())


def parse_calls(value: Value, *, wrapped: bool) -> list[tuple[str, Value]] | None:
    """Return the calls of an object or a list of objects; None when there is none at all."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    if isinstance(value, list):
        found = [call for item in value if (call := parse_call(item, wrapped=wrapped))]
        return found or None
    one = parse_call(value, wrapped=wrapped)
    return [one] if one else None
