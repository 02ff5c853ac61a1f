"""Calls as a name and an object of arguments, in the notations of many vendors.

`get{"path": "a"}`, `get[ARGS]{...}`, `call:get{path:"a"}`, `functions.get:0<|...|>{...}`,
`Action: get` with `Action Input: {...}`; also a name alone, which is a call without arguments.
"""

from __future__ import annotations

import re

from turnwright_grammar.dialects.payloads import GAP, NAME, Payload, read_arguments
from turnwright_grammar.scanner import TextScanner

_SEPARATOR = r"<[|\uff5c]tool[\u2581_\ ]sep[|\uff5c]>"
_NAMED = re.compile(
    rf"""
    (?: function\s*+(?={_SEPARATOR}) )? (?: {_SEPARATOR}\s*+ )?
    (?: \w++<\|tool_call:name\|>\s*+ )?
    (?P<call> (?:call)?:\s*+ (?:default_api:)? )?
    (?P<name> {NAME} ) (?: :\d{{1,9}}+ )? {GAP}
    (?: \[CALL_ID\]\w*+\[ARGS\] | \[ARGS\] | <\|tool_call_argument_begin\|> | <\|tool_call:args\|> | {_SEPARATOR}
      | <\|content\|> | Action[ ]Input:[ \t]*+ | \u273fARGS\u273f:? | : | (?P<paren>\() )? {GAP}
    (?P<fence> ```\w{{0,20}}+{GAP} )? (?=\{{)
    """,
    re.VERBOSE,
)
_PAREN_END = re.compile(r"\s*+\)")
_FENCE_END = re.compile(r"\s*+```")
# Inside `call:get{...}` strings have quotes of their own, so other vendors' tokens are data there.
_CALL_LIMIT = re.compile(r"<end_function_call>|<start_function_call>|<\|?tool_call\|?>")
_ACTION_INPUT = re.compile(rf"(?P<name>{NAME})[ \t]*+\r?\nAction[ ]Input:[ \t]*+(?P<said>[^\s{{][^\n]*+)")
_CLOSED_NAME = re.compile(rf"(?P<name>{NAME})\s*+</(?P<word>tool|action)>\s*+<(?P=word)_input>\s*+")
_CLOSED_END = {word: re.compile(rf"</{word}_input>") for word in ("tool", "action")}
_ONLY_NAME = re.compile(
    rf"(?:(?:call)?:(?P<called>[^{{}}<>\n]{{1,100}}+)(?=<)"
    rf"|(?P<name>{NAME})\s*+(?=\[TOOL_CALLS\]|(?!<[|\uff5c][^<>|\uff5c]*+(?<=sep|ame|rgs|gin|ent)[|\uff5c])</?[|\uff5c][^<>\n]{{1,60}}+>"
    rf"|(?P<cut>(?:<[^<>]{{0,60}}+)?\Z)))"
)


def named_arguments(scanner: TextScanner, start: int) -> Payload | None:
    """Return the call of a name that is followed by an object, or None. Never raises."""
    found = _NAMED.match(scanner.text, start)
    if found is None:
        return None
    payload = (
        read_arguments(scanner, found["name"], found.end(), _CALL_LIMIT)
        if found["call"]
        else read_arguments(scanner, found["name"], found.end())
    )
    if payload is None:
        return None
    for opened, ending in ((found["fence"], _FENCE_END), (found["paren"], _PAREN_END)):
        closing = ending.match(scanner.text, payload.end) if opened else None
        payload.end = closing.end() if closing else payload.end
    return payload


def action_input(scanner: TextScanner, start: int) -> Payload | None:
    """Return the call of `get`, `Action Input: a`: the argument is what the line says."""
    found = _ACTION_INPUT.match(scanner.text, start)
    if found is None:
        return None
    cut = found.end() >= len(scanner.text)
    value = found["said"].rstrip().removeprefix('"').removesuffix('"')
    return Payload(found.end(), [(found["name"], value)], cut=cut)


def closed_name_call(scanner: TextScanner, start: int) -> Payload | None:
    """Return the call of `get</tool><tool_input>a</tool_input>` (its first tag is the announcement)."""
    found = _CLOSED_NAME.match(scanner.text, start)
    if found is None:
        return None
    closing = scanner.search(_CLOSED_END[found["word"]], found.end())
    if closing is None:
        return Payload(len(scanner.text), [(found["name"], {})], cut=True)
    if scanner.text.startswith("{", found.end()):
        payload = read_arguments(scanner, found["name"], found.end())
        if payload is not None and not payload.cut:
            payload.end = max(payload.end, closing.end())
        return payload
    return Payload(closing.end(), [(found["name"], scanner.text[found.end() : closing.start()].strip())])


def bare_name_call(text: str, start: int) -> Payload | None:
    """The call of a name without arguments: `[TOOL_CALLS]refresh`, `call:odd name<tool_call|>`.

    At the end of the text it counts as truncated, except after Mistral's token.
    """
    found = _ONLY_NAME.match(text, start)
    if found is None:
        return None
    cut = found["cut"] is not None and not text.endswith("[TOOL_CALLS]", 0, start)
    return Payload(found.end(), [(found["called"] or found["name"], {})], cut=cut)
