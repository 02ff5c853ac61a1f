"""Calls in the formats that models were trained on, wherever they stand in a reply.

A vendor's token (`<tool_call>`, `[TOOL_CALLS]`, `<|python_tag|>`, ...) announces a payload; the
payload is one of a few notations, whoever's token it was:

| notation | example |
|---|---|
| JSON | `{"name": "get", "arguments": {"path": "a"}}`, lists of them, OpenAI's and Anthropic's shapes |
| named JSON | `get{"path": "a"}`, `get[ARGS]{...}`, `call:get{path:"a"}`, `functions.get:0<|...|>{...}` |
| function tags | `<function=get><parameter=path>a</parameter></function>`, `<invoke name="get">...` |
| keys and values | `get<arg_key>path</arg_key><arg_value>a</arg_value>` |
| Python | `get(path="a")`, `[get(path="a"), sh(command="ls")]` |

So vendors' tokens and payloads are told apart and combined freely. A payload that the end of the
text cuts off is not run: half a command may do harm. It is reported instead. Source: RU282, RU285.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from turnwright_grammar.find import Finder
from turnwright_grammar.native import calls_of
from turnwright_grammar.values import NotStrict, ReadValue, Value, read_loose, read_strict, read_value

Call = tuple[str, Value]

PYTHON_CALLS_MAX = 200
_STRICT_CHARS_FIRST = 1_000
# The tolerant reader is slower than the strict one, so it pays more from the budget.
_LOOSE_COST = 4
_NAME = r"[A-Za-z_][\w.\-]*"
_WORDS = (
    r"tool_?calls?|tool_?use|function_?calls?|functions|longcat_tool_call|dots_function_call"
    r"|(?:start|end)_function_call|tool_sep|tool_code"
)
TOKEN = re.compile(
    rf"""
      <\|message_sep\|>\s*function\ call\s*<\|role_sep\|>
    | </?[|\uff5c]DSML[|\uff5c]\w+>
    | </?[|\uff5c][^<>\n]{{1,60}}[|\uff5c]?>
    | <[A-Za-z_]{{1,30}}\|>
    | </?(?:[a-z]\w{{0,20}}[:|])?(?:{_WORDS})>
    | \[/?TOOL_CALLS?\] | \[ARGS\]
    | functools(?=\[)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ANNOUNCES = re.compile(
    r"tool[_\u2581 ]?calls?|tool_?use|function_?call|functions>|python_?(?:tag|start)|action_start|plugin"
    r"|content_invoke_tool|tools_prefix|role_sep|functools|\[ARGS\]|tool_code",
    re.IGNORECASE,
)
_ENDS = re.compile(r"^<?/|end|suffix|^<[A-Za-z_]+\|>$|tool_?sep", re.IGNORECASE)
FUNCTION_TAG = re.compile(
    rf"<(?P<ns>\w+:|[|\uff5c]DSML[|\uff5c])?(?P<word>function|invoke)(?:=|\s*name\s*=\s*)"
    rf"(?P<quote>[\"']?)(?P<name>{_NAME})(?P=quote)\s*(?P<self>/)?>"
)
_PARAMETER = re.compile(
    r"<(?:\w+:|[|\uff5c]DSML[|\uff5c])?(?:parameter|param)(?:=|\s*name\s*=\s*)(?P<quote>[\"']?)(?P<name>[^\"'<>=\s]+)(?P=quote)[^<>]*>"
)
_PARAMETER_END = re.compile(r"</(?:\w+:|[|\uff5c]DSML[|\uff5c])?(?:parameter|param)>")
_FUNCTION_END = re.compile(r"</(?:\w+:|[|\uff5c]DSML[|\uff5c])?(?:function|invoke)>")
_AFTER_PARAMETER = re.compile(
    r"\s*(?:<(?:\w+:|[|\uff5c]DSML[|\uff5c])?(?:parameter|param)(?:name)?\b|</(?:\w+:|[|\uff5c]DSML[|\uff5c])?(?:function|invoke)>)"
)
_CDATA = re.compile(r"\s*<!\[CDATA\[(?P<inner>.*)\]\]>\s*", re.DOTALL)
_NAMED_JSON = re.compile(
    rf"(?:call)?:?\s*(?P<name>{_NAME})(?::\d+)?\s*(?:\[ARGS\]|\[CALL_ID\]\w*\[ARGS\]|<\|tool_call_argument_begin\|>"
    r"|<[|\uff5c]tool[\u2581_ ]sep[|\uff5c]>)?\s*(?=\{)"
)
_DEEPSEEK = re.compile(
    rf"(?:function)?\s*<[|\uff5c]tool[\u2581_]sep[|\uff5c]>\s*(?P<name>{_NAME})\s*(?:```(?:json)?\s*)?(?=\{{)"
)
_KEYED = re.compile(rf"(?P<name>{_NAME})\s*(?:<tool_sep>\s*)?(?=<arg_key>|</(?:\w+[:|])?tool_call>)")
_ARG_KEY = re.compile(r"\s*<arg_key>(?P<name>[^<]*)</arg_key>\s*(?P<value><arg_value>)?")
_ARG_VALUE_END = re.compile(r"</arg_value>")
_NAMED_TAGS = re.compile(
    r"\s*<(?:tool_)?name>\s*(?P<name>[^<>\s]+)\s*</(?:tool_)?name>\s*<(?P<word>input|arguments|parameters|args)>\s*"
)
_PYTHON_NAME = re.compile(rf"\s*(?:print\()?(?P<name>{_NAME})\(")
_KEYWORD = re.compile(r"\s*,?\s*(?P<name>[A-Za-z_]\w*)\s*=\s*")
_LIMIT = re.compile(
    r"</?(?:\w+[:|])?(?:tool_?calls?|tool_?use|function_?calls?)>|<tool_call\|>|<\|/?tool_call[^<>\n]*>"
    r"|<end_function_call>|<\|(?:end_message|action_end|tools_suffix|call|end)\|>"
    r"|\[TOOL_CALLS\]|<[|\uff5c]tool[\u2581_]calls?[\u2581_](?:begin|end)[|\uff5c]>"
)
_SPACES = re.compile(r"[\s;,]*")
_ONLY_NAME = re.compile(
    rf"(?:(?:call)?:(?P<called>[^{{}}<>\n]{{1,100}})(?=<)|(?P<name>{_NAME})\s*(?=\[TOOL_CALLS\]|</?[|\uff5c]|\Z))"
)
_FENCE_END = re.compile(r"\s*```")


@dataclass(slots=True)
class Payload:
    """What followed a token: calls, where it ended, whether it was repaired or cut off."""

    end: int
    calls: list[Call] = field(default_factory=list)
    repaired: bool = False
    cut: bool = False


def announces_call(token: str) -> bool:
    """Whether a vendor's token says that a call follows (and does not end one)."""
    return bool(_ANNOUNCES.search(token)) and not (_ENDS.search(token) and "[ARGS]" not in token)


def read_payload(finder: Finder, start: int) -> Payload | None:
    """Return the calls written at `start`, or None when no notation fits. Never raises."""
    text = finder.text
    start = _after_spaces(text, start)
    char = text[start : start + 1]
    if char == "<":
        return _function_tag(finder, start) or _named_tags(finder, start)
    if char == "{":
        return _json(finder, start)
    if char == "[":
        return _json(finder, start) if _PYTHON_NAME.match(text, start + 1) is None else python_calls(finder, start)
    return (
        _named_json(finder, start)
        or _deepseek(finder, start)
        or _keyed(finder, start)
        or python_calls(finder, start)
        or _only_name(text, start)
    )


def _after_spaces(text: str, start: int) -> int:
    return _SPACES.match(text, start).end()  # type: ignore[union-attr]


def read_json(finder: Finder, start: int, loose_chars_max: int = 1_000_000) -> ReadValue | None:
    """Return the value at `start`: strict JSON of any length, or repaired up to the next vendor's token.

    A strict value may hold tokens inside its strings; a broken one must not run into the next call.
    """
    text = finder.text
    limit = finder.search(_LIMIT, start)
    end = limit.start() if limit else len(text)
    size = min(_STRICT_CHARS_FIRST, len(text) - start)
    while finder.spend(size):
        strict = read_strict(text[start : start + size])
        if isinstance(strict, ReadValue):
            return ReadValue(strict.value, start + strict.end)
        if strict is NotStrict.BROKEN or start + size >= len(text):
            break
        size = min(size * 8, len(text) - start)
    end = min(end, start + loose_chars_max)
    return read_value(text, start, end) if finder.spend(_LOOSE_COST * (end - start)) else None


def _json(finder: Finder, start: int) -> Payload | None:
    read = read_json(finder, start)
    if read is None:
        return None
    calls = calls_of(read.value, wrapped=True)
    if calls is None:
        return Payload(read.end, cut=read.cut) if read.cut else None
    return Payload(read.end, calls, read.repaired, read.cut)


def _named(finder: Finder, name: str, start: int) -> Payload | None:
    read = read_json(finder, start)
    if read is None or not isinstance(read.value, dict):
        return None
    return Payload(read.end, [(name, read.value)], read.repaired, read.cut)


def _named_json(finder: Finder, start: int) -> Payload | None:
    found = _NAMED_JSON.match(finder.text, start)
    return _named(finder, found["name"], found.end()) if found else None


def _deepseek(finder: Finder, start: int) -> Payload | None:
    found = _DEEPSEEK.match(finder.text, start)
    payload = _named(finder, found["name"], found.end()) if found else None
    if payload and (fence := _FENCE_END.match(finder.text, payload.end)):
        payload.end = fence.end()
    return payload


def _function_tag(finder: Finder, start: int) -> Payload | None:
    found = FUNCTION_TAG.match(finder.text, start)
    if found is None:
        return None
    if found["self"]:
        return Payload(found.end(), [(found["name"], {})])
    inside = _after_spaces(finder.text, found.end())
    if finder.text.startswith("{", inside):
        return _function_json(finder, found["name"], inside)
    return _parameters(finder, found["name"], found.end())


def _function_json(finder: Finder, name: str, start: int) -> Payload | None:
    payload = _named(finder, name, start)
    closing = _FUNCTION_END.match(finder.text, _after_spaces(finder.text, payload.end)) if payload else None
    if payload and closing:
        payload.end = closing.end()
    return payload


def _parameters(finder: Finder, name: str, position: int) -> Payload:
    text = finder.text
    arguments: dict[str, Value] = {}
    while True:
        position = _after_spaces(text, position)
        if closing := _FUNCTION_END.match(text, position):
            return Payload(closing.end(), [(name, arguments)])
        parameter = _PARAMETER.match(text, position)
        if parameter is None:
            # Something that is no parameter: the arguments cannot be trusted, the call is reported.
            closing = finder.search(_FUNCTION_END, position)
            return Payload(closing.end() if closing else len(text), cut=closing is None)
        value, position, cut = _parameter_value(finder, parameter.end())
        arguments[parameter["name"]] = value
        if cut:
            return Payload(position, [(name, arguments)], cut=True)


def _parameter_value(finder: Finder, start: int) -> tuple[str, int, bool]:
    """Return value, end and whether it was cut. A close counts when a parameter or the end follows."""
    text = finder.text
    closing = finder.search(_PARAMETER_END, start)
    while closing and not _AFTER_PARAMETER.match(text, closing.end()):
        later = finder.search(_PARAMETER_END, closing.end())
        if later is None:
            break
        closing = later
    if closing is None:
        function_end = finder.search(_FUNCTION_END, start)
        if function_end is None:
            return text[start:], len(text), True
        return _parameter_text(text[start : function_end.start()]), function_end.start(), False
    return _parameter_text(text[start : closing.start()]), closing.end(), False


def _parameter_text(raw: str) -> str:
    if found := _CDATA.fullmatch(raw):
        return found["inner"]
    return raw.removeprefix("\n").removesuffix("\n")


def _named_tags(finder: Finder, start: int) -> Payload | None:
    found = _NAMED_TAGS.match(finder.text, start)
    if found is None:
        return None
    payload = _named(finder, found["name"], found.end())
    if payload is None:
        return None
    closing = re.compile(rf"\s*</{found['word']}>").match(finder.text, payload.end)
    payload.end = closing.end() if closing else payload.end
    return payload


def _keyed(finder: Finder, start: int) -> Payload | None:
    text = finder.text
    found = _KEYED.match(text, start)
    if found is None:
        return None
    arguments: dict[str, Value] = {}
    position = found.end()
    while key := _ARG_KEY.match(text, position):
        position = key.end()
        if not key["value"]:
            continue
        closing = finder.search(_ARG_VALUE_END, position)
        if closing is None:
            return Payload(len(text), [(found["name"], arguments)], cut=True)
        arguments[key["name"].strip()] = text[position : closing.start()]
        position = closing.end()
    cut = _after_spaces(text, position) >= len(text)
    return Payload(position, [(found["name"], arguments)], cut=cut)


def _only_name(text: str, start: int) -> Payload | None:
    """A name without arguments: `[TOOL_CALLS]refresh`, `call:odd name<tool_call|>`."""
    found = _ONLY_NAME.match(text, start)
    return Payload(found.end(), [(found["called"] or found["name"], {})]) if found else None


def python_calls(finder: Finder, start: int) -> Payload | None:
    """Return the calls of `[a(x=1), b()]` or `a(x=1)` at `start`, or None."""
    text = finder.text
    bracketed = text.startswith("[", start)
    payload = Payload(start + 1 if bracketed else start)
    while len(payload.calls) < PYTHON_CALLS_MAX:
        if bracketed and text.startswith("]", _after_spaces(text, payload.end)):
            payload.end = _after_spaces(text, payload.end) + 1
            break
        position = _after_spaces(text, payload.end) if payload.calls else payload.end
        one = _python_call(finder, position)
        if one is None:
            return None if bracketed or not payload.calls else payload
        payload.calls.extend(one.calls)
        payload.end, payload.cut = one.end, one.cut
        if one.cut or not bracketed:
            break
    return payload if payload.calls else None


def _python_call(finder: Finder, start: int) -> Payload | None:
    text = finder.text
    found = _PYTHON_NAME.match(text, start)
    if found is None:
        return None
    arguments: dict[str, Value] = {}
    position = found.end()
    while True:
        position = _SPACES.match(text, position).end()  # type: ignore[union-attr]
        if position >= len(text):
            return Payload(position, [(found["name"], arguments)], cut=True)
        if text[position] == ")":
            end = position + 1
            if "print(" in found[0] and text.startswith(")", end):
                end += 1
            return Payload(end, [(found["name"], arguments)])
        keyword = _KEYWORD.match(text, position)
        read = read_loose(text, keyword.end()) if keyword and finder.budget_chars > 0 else None
        if keyword is None or read is None or read.end <= position:
            return None
        if read.cut:
            finder.spend(read.end - position)
        arguments[keyword["name"]] = read.value
        position = read.end
