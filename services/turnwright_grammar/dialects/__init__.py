"""Parsers for calls in the formats that models were trained on.

A vendor's token (`<tool_call>`, `[TOOL_CALLS]`, `<|python_tag|>`, ...) announces a payload; the
payload is one of a few notations, whoever's token it was:

| notation | example | module |
|---|---|---|
| JSON | `{"name": "get", "arguments": {"path": "a"}}`, lists of them, OpenAI's and Anthropic's shapes | here |
| named | `get{"path": "a"}`, `get[ARGS]{...}`, `call:get{path:"a"}`, `functions.get:0<|...|>{...}` | `notation_names` |
| tags | `<function=get><parameter=path>a</parameter></function>`, `<invoke name="get">...` | `notation_tags` |
| keys and values | `get<arg_key>path</arg_key><arg_value>a</arg_value>` | `notation_tags` |
| Python | `get(path="a")`, `[get(path="a"), sh(command="ls")]` | `notation_python` |

So vendors' tokens and payloads are told apart and combined freely. A payload that the end of the
text cuts off is not run: half a command may do harm. It is reported instead. Source: RU282, RU285.
"""

from __future__ import annotations

import re

from turnwright_grammar.dialects.names import action_input, bare_name_call, closed_name_call, named_arguments
from turnwright_grammar.dialects.payloads import (
    LIMIT,
    NAME,
    ParsedCall,
    Payload,
    has_text_before_close,
    read_json,
    skip_blanks,
)
from turnwright_grammar.dialects.python import begins_python, python_calls
from turnwright_grammar.dialects.tags import FUNCTION_TAG, arg_key_pairs, function_tag, named_tags
from turnwright_grammar.native import parse_calls
from turnwright_grammar.scanner import TextScanner
from turnwright_grammar.values.strict import Value, read_items

__all__ = [
    "BARE_TOKEN",
    "FUNCTION_TAG",
    "LIMIT",
    "TOKEN",
    "ParsedCall",
    "Payload",
    "announces_call",
    "has_text_before_close",
    "python_calls",
    "read_json",
    "read_payload",
]

_WORDS = (
    r"tool_?calls?|tool_?use|function_?calls?|functions|longcat_tool_call|dots_function_call"
    r"|(?:start|end)_function_call|tool_sep|tool_code"
)
# Tokens that do not begin with an angle: the reader looks for them as they are.
BARE_TOKEN = (
    r"\[/?TOOL_CALLS?\]|\[(?:END_)?TOOL_REQUEST\]|functools(?=\[)|\u273fFUNCTION\u273f:?"
    rf"|^>>>(?={NAME}[ \t]*+\r?\n\s*+\{{)|^>>>all(?=\n)"
    rf"|^(?:\*\*)?Action:(?:\*\*)?[ \t]*+(?={NAME}[ \t]*+\r?\nAction[ ]Input:)"
)
TOKEN = re.compile(
    rf"""
      <\|message_sep\|>\s*+function\ call\s*+<\|role_sep\|>
    | <\|recipient\|>\s*+all\b
    | </?[|\uff5c]DSML[|\uff5c]\w+>
    | </?[|\uff5c][^<>\n]{{1,60}}[|\uff5c]?>
    | <[A-Za-z_]{{1,30}}\|>
    | </?(?:[a-z]\w{{0,20}}[:|])?(?:{_WORDS})>
    | <(?P<word>tool|action)>(?=\s*+(?:{NAME}\s*+(?:</(?P=word)>\s*+(?:<(?P=word)_input>|<[^<>]{{0,20}}+\Z|\Z)
        |(?:<[^<>]{{0,20}}+)?\Z)|\Z))
    | \[ARGS\] | {BARE_TOKEN}
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_ANNOUNCES = re.compile(
    r"tool[_\u2581 ]?calls?|tool_?use|function_?call|functions>|python_?(?:tag|start)|action_start|START_ACTION|plugin"
    r"|content_invoke_tool|tools_prefix|role_sep|functools|\[ARGS\]|tool_code|TOOL_REQUEST|recipient\|>$"
    r"|^<(?:tool|action)>$|\u273fFUNCTION|^>>>$|Action:",
    re.IGNORECASE,
)
_ENDS = re.compile(r"^<?/|end|suffix|^<[A-Za-z_]+\|>$|tool_?sep", re.IGNORECASE)
_BEFORE_TAG = re.compile(r"(?:function\s*+)?<[|\uff5c]tool[\u2581_ ]sep[|\uff5c]>\s*+(?=<)")
_FENCE = re.compile(r"```[\w+\-]*+[ \t]*+\r?\n\s*+")
_FENCE_CUT = re.compile(r"`{0,2}\Z")
_FENCE_END = re.compile(r"\s*+```")


def announces_call(token: str) -> bool:
    """Whether a call follows a vendor's token."""
    return bool(_ANNOUNCES.search(token)) and not (_ENDS.search(token) and "[ARGS]" not in token)


def read_payload(scanner: TextScanner, start: int) -> Payload | None:
    """The calls at `start`; None if no notation matches. Never raises."""
    text = scanner.text
    # A single word right behind its token may be a call; behind a blank it is a word of a sentence.
    is_adjacent = not text.startswith((" ", "\t"), start)
    start = skip_blanks(text, start)
    if fence := _FENCE.match(text, start):
        return _fenced(scanner, fence.end())
    if before := _BEFORE_TAG.match(text, start):
        start = before.end()
    return _notation(scanner, start, is_adjacent=is_adjacent)


def _notation(scanner: TextScanner, start: int, *, is_adjacent: bool) -> Payload | None:
    char = scanner.text[start : start + 1]
    if char == "<":
        return function_tag(scanner, start) or named_tags(scanner, start) or named_arguments(scanner, start)
    if char == "{":
        return _json(scanner, start)
    if char == "[":
        return python_calls(scanner, start) if begins_python(scanner.text, start + 1) else _json(scanner, start)
    return (
        named_arguments(scanner, start)
        or arg_key_pairs(scanner, start, is_adjacent=is_adjacent)
        or python_calls(scanner, start, positional=True)
        or action_input(scanner, start)
        or closed_name_call(scanner, start)
        or (bare_name_call(scanner.text, start) if is_adjacent else None)
    )


def _json(scanner: TextScanner, start: int) -> Payload | None:
    read = read_json(scanner, start)
    if read is None:
        return None
    calls, whole = parse_calls(read.value, wrapped=True), 0
    if read.cut and isinstance(read.value, list):
        complete = parse_calls(read_items(scanner.text[start:]), wrapped=True) or []
        calls, whole = complete + (calls or [])[len(complete) :], len(complete)
    if not calls:
        return Payload(read.end, _named(read.value, scanner.text), cut=True) if read.cut else None
    return Payload(read.end, calls, read.repaired, read.cut, over=read.over, whole=whole)


def _named(value: Value, text: str) -> list[ParsedCall]:
    """The call whose name is all that is there of it, unless the name itself is cut off."""
    name = value.get("name") if isinstance(value, dict) else None
    return [(name, {})] if isinstance(name, str) and not text.endswith(name) else []


def _fenced(scanner: TextScanner, start: int) -> Payload | None:
    """The calls in a fence between a token and its end."""
    payload = following = _notation(scanner, start, is_adjacent=True)
    while payload and following and following.calls and not following.cut:
        position = skip_blanks(scanner.text, payload.end)
        if ended := _FENCE_END.match(scanner.text, position):
            payload.end = ended.end()
            break
        following = _notation(scanner, position, is_adjacent=False)
        if following is None:
            payload.cut = not scanner.final and _FENCE_CUT.match(scanner.text, position) is not None
        else:
            payload.calls.extend(following.calls)
            payload.end, payload.cut = following.end, following.cut
    return payload
