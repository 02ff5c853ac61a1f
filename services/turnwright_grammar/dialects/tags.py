"""Calls written as tags: the function in one, each argument in another.

`<function=get><parameter=path>a</parameter></function>`, `<invoke name="get">...`, the same with a
vendor's namespace, `<tool_use><name>get</name><input>...`, and GLM's keys and values. Where a value
ends is `tag_values`' story.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from turnwright_grammar.dialects.payloads import GAP, NAME, SPACE, Payload, read_arguments, skip_blanks
from turnwright_grammar.scanner import TextScanner
from turnwright_grammar.values.strict import Value

# The end of an argument's value in tags: `<parameter=path>a</parameter>`.
#
# A value is opaque: it may hold code, other tags, even whole calls. So its close counts only where
# another argument or the end of the call follows, and after as many closes as the value opens itself.
# A close that was forgotten is found again where the next argument, the next call or the end of this
# one begins.

PARAMETER = r"(?:parameter|param|argument|arg)"
CALL_END = rf"</{SPACE}(?:tool_?calls?|function_?calls?|tool)>"
CALL_BEGIN = rf"(?:<{SPACE}(?:function|invoke)(?:=|\s++name\s*+=)|<{SPACE}tool_call>)"
_OPENING = re.compile(rf"<{SPACE}{PARAMETER}(?:=|\s++name\s*+=)")
_CLOSING = re.compile(rf"</{SPACE}{PARAMETER}>")
_AFTER_VALUE = re.compile(
    rf"\s*+(?:<{SPACE}{PARAMETER}(?:name)?\b|</{SPACE}(?:function|invoke|tool|function_call|action)>"
    rf"|{CALL_END}|{CALL_BEGIN}|\Z)"
)
_AFTER_CALL = re.compile(rf"\s*+(?:{CALL_END}|{CALL_BEGIN}|\Z)")
_NEXT = re.compile(
    rf"\n\s*+(?:<{SPACE}{PARAMETER}(?:=|\s++name\s*+=)\s*+[\"']?(?P<name>[^\"'<>=\s/]*+)[^<>\n]*+>|{CALL_BEGIN})"
)
# Tags inside one value that are considered as its end.
_TAGS_TRIED_MAX = 100
_CDATA_START, _CDATA_END = "<![CDATA[", "]]>"


def argument_value(
    scanner: TextScanner, start: int, ending: re.Pattern[str], given: Collection[str] = ()
) -> tuple[str | None, int, bool]:
    """The value at `start`, where to continue, and whether its end was guessed.

    The value is None if it is truncated. `ending` matches the end of the call. Arguments in `given`, this one included,
    do not occur again: what looks like one is part of the value.
    """
    text = scanner.text
    inside = _after_cdata(text, start)
    first = scanner.search(_CLOSING, inside)
    call_end = scanner.search(ending, inside)
    if call_end and not (first and first.start() < call_end.start()) and _AFTER_CALL.match(text, call_end.end()):
        return _stripped(text[start : call_end.start()]), call_end.start(), True
    if first is None:
        return None, len(text), True
    closing = _balanced(scanner, inside)
    if closing is None and (missing := _next_begins(scanner, inside, first, given)) is not None:
        return _stripped(text[start:missing]), missing, True
    last = closing or _followed(scanner, first)
    return _stripped(text[start : last.start()]), last.end(), closing is None


def _balanced(scanner: TextScanner, position: int) -> re.Match[str] | None:
    """The close that leaves no tag open inside the value and is followed by what may follow it."""
    depth, start = 1, position
    opening, closing = scanner.search(_OPENING, position), scanner.search(_CLOSING, position)
    for _ in range(_TAGS_TRIED_MAX if scanner.can_spend(start) else 1):
        if closing is None:
            break
        position = closing.end()
        if opening and opening.start() < closing.start():
            depth += 1
            opening = scanner.search(_OPENING, opening.end())
            continue
        if depth == 1 and _AFTER_VALUE.match(scanner.text, closing.end()):
            return closing
        depth = max(depth - 1, 1)
        closing = scanner.search(_CLOSING, closing.end())
    scanner.spend(position - start)
    return None


def _next_begins(scanner: TextScanner, position: int, first: re.Match[str], given: Collection[str]) -> int | None:
    following = scanner.search(_NEXT, position)
    while following and following["name"] in given and following.end() <= first.start():
        following = scanner.search(_NEXT, following.end())
    begins = following is not None and following.end() <= first.start()
    return following.start() if following and begins and _AFTER_VALUE.match(scanner.text, first.end()) else None


def _followed(scanner: TextScanner, first: re.Match[str]) -> re.Match[str]:
    """The first close that is followed by what may follow it, or else the first."""
    closing: re.Match[str] | None = first
    while closing and not _AFTER_VALUE.match(scanner.text, closing.end()) and scanner.can_spend(first.end()):
        closing = scanner.search(_CLOSING, closing.end())
    scanner.spend((closing.end() if closing else len(scanner.text)) - first.end())
    return closing or first


def _after_cdata(text: str, start: int) -> int:
    opening = skip_blanks(text, start)
    if not text.startswith(_CDATA_START, opening):
        return start
    return max(start, text.find(_CDATA_END, opening))


def _stripped(raw: str) -> str:
    """The text without a CDATA mark, or without one line break on either side."""
    stripped = raw.strip()
    if stripped.startswith(_CDATA_START) and stripped.endswith(_CDATA_END):
        return stripped[len(_CDATA_START) : -len(_CDATA_END)]
    if raw.startswith("\r\n"):
        return raw.removeprefix("\r\n").removesuffix("\n").removesuffix("\r")
    return raw.removeprefix("\n").removesuffix("\n")


# `tool` and `action` are common XML tags: only what follows shows that this is a call.
_OTHER = r"(?P<other>tool|function_call|tool_call|action)(?=\s*+name\s*+=)"
_FOLLOWS = rf"(?:\{{|<{SPACE}{PARAMETER}\b|</{SPACE}(?:function|tool)_call>|(?:<[^<>]{{0,60}}+)?\Z)"
FUNCTION_TAG = re.compile(
    rf"<(?P<ns>{SPACE})(?:(?P<word>function|invoke)|{_OTHER}(?=[^<>]{{0,200}}+>\s*+{_FOLLOWS}))"
    rf"(?:=|\s*+name\s*+=\s*+)(?P<quote>[\"']?)(?P<name>{NAME})(?P=quote){GAP}(?P<self>/)?>"
)
_PARAMETER = re.compile(
    rf"<{SPACE}{PARAMETER}(?:=|\s*+name\s*+=\s*+)(?P<quote>[\"']?)(?P<name>[^\"'<>=\s/]++)(?P=quote)[^<>]*+(?<!/)>"
)
_FUNCTION_END = re.compile(rf"</{SPACE}(?:function|invoke)>")
_ENDS = {word: re.compile(rf"</{SPACE}{word}>") for word in ("tool", "function_call", "tool_call", "action")}
# A call without its close ends with the tag around it, or where the next call begins.
_OUTER_END = re.compile(rf"{CALL_END}|(?={CALL_BEGIN})")
_NAMED_TAGS = re.compile(
    r"(?:<(?P<outer>invoke|function)>\s*+)?<(?:tool_)?name>\s*+(?P<name>[^<>\s]++)\s*+</(?:tool_)?name>"
    r"\s*+<(?P<word>input|arguments|parameters|args)>\s*+"
)
_WORD_ENDS = {
    word: re.compile(rf"</{word}>") for word in ("input", "arguments", "parameters", "args", "invoke", "function")
}
_WRAPPER = re.compile(r"\s*+<(?P<name>parameters|arguments|args|input)>\s*+(?=<)")
_FIELDS = re.compile(rf"\s*+<(?!{PARAMETER}\b)[a-z]\w*+>")
_FIELD = re.compile(r"\s*+<(?P<name>[A-Za-z_][\w.\-]*+)>")
_KEYED = re.compile(
    rf"(?P<name>{NAME})\s*+(?:<tool_sep>\s*+)?(?:(?=<(?P<ns>\w{{0,40}}?)arg_key>)|(?P<alone>(?=</(?:\w++[:|])?\w*?tool_call>)))"
)
_ARG_KEY = re.compile(r"\s*+<(?P<ns>\w*?)arg_key>(?P<name>[^<]*+)</(?P=ns)arg_key>\s*+(?P<value><(?P=ns)arg_value>)?")
_KEYS_CUT = re.compile(r"\s*+(?:<\w*?arg_key>[^<]*+(?:<[^<>]*+)?|<[^<>]*+)?\Z")
_ARG_VALUE_END = re.compile(r"</\w*?arg_value>")
# A value may contain its own close: it ends before another key or the end of the call.
_ARG_VALUE_LAST = re.compile(rf"</\w*?arg_value>(?=\s*+(?:<\w*?arg_key>|</?{SPACE}\w*?tool_call|</?[|\uff5c]|\Z))")


def function_tag(scanner: TextScanner, start: int) -> Payload | None:
    """Return the call that opens with `<function=name>` or one of its kin, or None. Never raises."""
    found = FUNCTION_TAG.match(scanner.text, start)
    if found is None:
        return None
    if found["self"]:
        return Payload(found.end(), [(found["name"], {})])
    ending = _ENDS.get(found["other"], _FUNCTION_END)
    inside = skip_blanks(scanner.text, found.end())
    if scanner.text.startswith("{", inside):
        return _closed_by(scanner, ending, read_arguments(scanner, found["name"], inside))
    fields = _fields(scanner, found["name"], inside, ending) if _FIELDS.match(scanner.text, inside) else None
    return fields or _parameters(scanner, found["name"], found.end(), ending)


def _closed_by(scanner: TextScanner, ending: re.Pattern[str], payload: Payload | None) -> Payload | None:
    if payload is not None:
        closing = ending.match(scanner.text, skip_blanks(scanner.text, payload.end))
        payload.end = closing.end() if closing else payload.end
    return payload


def _parameters(scanner: TextScanner, name: str, position: int, ending: re.Pattern[str]) -> Payload:
    text = scanner.text
    payload = Payload(position)
    arguments: dict[str, Value] = {}
    while True:
        position = skip_blanks(text, position)
        if closing := ending.match(text, position):
            payload.end, payload.calls = closing.end(), [(name, arguments)]
            return payload
        parameter = _PARAMETER.match(text, position)
        if parameter is None:
            return _unended(scanner, name, arguments, position)
        value, position, repaired = argument_value(scanner, parameter.end(), ending, {*arguments, parameter["name"]})
        payload.repaired = payload.repaired or repaired
        if value is None:
            return Payload(position, [(name, arguments | {parameter["name"]: ""})], cut=True)
        # A repeated argument is ambiguous, or part of an earlier value.
        payload.over = payload.over or arguments.get(parameter["name"], value) != value
        arguments.setdefault(parameter["name"], value)


def _unended(scanner: TextScanner, name: str, arguments: dict[str, Value], position: int) -> Payload:
    """Error recovery where an argument or the end was expected: the end of a tag around the call, or junk."""
    outer = _OUTER_END.match(scanner.text, position)
    if outer is not None and (arguments or outer[0]):
        return Payload(position, [(name, arguments)], repaired=True)
    # Something that is no argument: the call cannot be trusted and is reported.
    closing = scanner.search(_FUNCTION_END, position)
    return Payload(closing.end()) if closing else Payload(len(scanner.text), [(name, arguments | {"": ""})], cut=True)


def named_tags(scanner: TextScanner, start: int) -> Payload | None:
    """Return the call of `<name>get</name><input>...</input>`, or None. Never raises."""
    found = _NAMED_TAGS.match(scanner.text, start)
    if found is None:
        return None
    ending = _WORD_ENDS[found["word"]]
    if scanner.text.startswith("{", found.end()):
        payload = _closed_by(scanner, ending, read_arguments(scanner, found["name"], found.end()))
    else:
        payload = _fields(scanner, found["name"], found.end(), ending)
    return _closed_by(scanner, _WORD_ENDS[found["outer"]], payload) if found["outer"] else payload


def _fields(scanner: TextScanner, name: str, start: int, ending: re.Pattern[str]) -> Payload | None:
    """The call whose arguments are tags named after them: `<path>a</path>`."""
    text = scanner.text
    closing = scanner.search(ending, start)
    if closing is None:
        return Payload(len(text), [(name, {})], cut=True)
    wrapper = _WRAPPER.match(text, start, closing.start())
    start = position = wrapper.end() if wrapper else start
    arguments: dict[str, Value] = {}
    while opening := _FIELD.match(text, position, closing.start()):
        finish = f"</{opening['name']}>"
        end = text.find(finish, opening.end(), closing.start())
        if end < 0:
            break
        arguments[opening["name"]] = text[opening.end() : end].strip()
        position = end + len(finish)
    if wrapper:
        position = max(position, text.find(f"</{wrapper['name']}>", position, closing.start()) + len(wrapper[0]))
    if not scanner.can_spend(start) or skip_blanks(text, position) < closing.start():
        scanner.spend(closing.start() - start)
        return None
    return Payload(closing.end(), [(name, arguments)])


def arg_key_pairs(scanner: TextScanner, start: int, *, is_adjacent: bool) -> Payload | None:
    """Return the call of `get<arg_key>path</arg_key><arg_value>a</arg_value>`, or None. Never raises.

    A name alone is a call only when `is_adjacent` to its token: `<tool_call> and </tool_call>` is prose.
    """
    text = scanner.text
    found = _KEYED.match(text, start)
    if found is None or (found["alone"] is not None and not is_adjacent):
        return None
    arguments: dict[str, Value] = {}
    repaired = False
    position = found.end()
    while key := _ARG_KEY.match(text, position):
        position = key.end()
        if not key["value"]:
            continue
        closing = scanner.search(_ARG_VALUE_LAST, position)
        if closing is None and scanner.final:
            closing, repaired = scanner.search(_ARG_VALUE_END, position), True
        if closing is None:
            return Payload(len(text), [(found["name"], arguments | {key["name"].strip(): ""})], cut=True)
        arguments[key["name"].strip()] = text[position : closing.start()]
        position = closing.end()
    cut = _KEYS_CUT.match(text, position) is not None
    return Payload(position, [(found["name"], arguments)], repaired, cut)
