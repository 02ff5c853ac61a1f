"""Handlers for calls in vendors' formats; `dialects` has the notations.

Each handler gets the state and the offset of its trigger, and returns the offset to continue at. A well-formed call is
final with the first character after it. One that needs repair is final at the end of the reply, because more text might
have made it well-formed.
"""

from __future__ import annotations

import re

from turnwright_grammar import dialects
from turnwright_grammar.native import cut_command, parse_call, parse_calls, tool_name
from turnwright_grammar.reader import hallucinated
from turnwright_grammar.reader.bodies import WHOLE_TAG
from turnwright_grammar.reader.parser_state import ParserState
from turnwright_grammar.reply import Command
from turnwright_grammar.scanner import BracketBalance, SearchTrigger, TextScanner
from turnwright_grammar.values.strict import ReadValue, read_items

# Lookahead for a broken object without a vendor's token before it.
BARE_CHARS_MAX = 20_000
# Lookahead after a token that decides which notation follows.
_NOTATION_CHARS_MAX = 256
# A separator may be followed by a word and another separator.
_SEPARATED_CHARS_MAX = 64
_SEPARATORS = re.compile(r"[\s;,]*")
_PYTHON_CALL = re.compile(r"\[\s*(\w+)\(\s*\w+\s*=\s*[\"']")
_OTHERS = ("user", "system", "tool", "function", "developer", "ipython")
_LIST = re.compile(r"(?:\{\s*\"tool_calls\"\s*:\s*)?\[")
_LINE_OR_LIMIT = re.compile(rf"\n|{dialects.LIMIT.pattern}")
_TAG_WAKE = SearchTrigger(
    re.compile(r"</[^<>\s]{0,20}(?:function|invoke|calls?|tool|tool_use|action|input|arguments|parameters|args)>"),
    ">",
)
_OPENING = re.compile(r"(?:[^<\[{]|\[(?:ARGS|CALL_ID|TOOL_CALLS)\]){0,100}[\[{]")


def on_vendor(state: ParserState, found: re.Match[str]) -> int:
    """Read the call after a vendor's token; other tokens are noise."""
    token, start = found, found.start()
    if "sep" in token[0] and len(state.text) < token.end() + _SEPARATED_CHARS_MAX and state.needs_more():
        return start
    if not dialects.announces_call(token[0]):
        state.skip(*token.span())
        return token.end()
    while (following := _token_after(state, token.end())) and dialects.announces_call(following[0]):
        token = following
    return on_payload(state, start, token.end())


def _token_after(state: ParserState, position: int) -> re.Match[str] | None:
    return dialects.TOKEN.match(state.text, _after_blanks(state, position))


def _after_blanks(state: ParserState, position: int) -> int:
    return _SEPARATORS.match(state.text, position).end()  # type: ignore[union-attr]


def on_payload(state: ParserState, start: int, position: int) -> int:
    """Read the calls at `position`, announced at `start`."""
    payload = _payload_at(state, position)
    if not is_final(state, payload, position) and state.needs_more(resume_condition(state, position)):
        return start
    state.skip(start, position)
    is_first_cut = start == state.cut_at
    while payload is not None and payload.calls and not payload.cut:
        start, before = state.add_calls(payload, (start, payload.end)), position
        if not _is_followed_by_object(state, start):
            return start
        is_first_cut = is_first_cut and _is_certain(state, payload, before)
        if is_first_cut:
            # The calls of a series are complete one by one.
            state.complete_commands = len(state.commands)
        position = start
        payload = _payload_at(state, start)
        if payload is None:
            return position
        if not is_final(state, payload, position) and state.needs_more(resume_condition(state, position)):
            return start
    if payload is not None and payload.cut:
        return warn_truncated(state, payload, start, payload.end)
    return warn_unreadable(state, start, position)


def warn_truncated(state: ParserState, payload: dialects.Payload, start: int, end: int) -> int:
    """Warn about a truncated call; the calls before it in the same list are complete and run."""
    if (after := state.end_thought_within(start, end)) is not None:
        return after
    state.add_complete_calls(payload, (start, end))
    span = state.outer_span((start, end))
    calls = payload.calls[payload.whole :] or [("", {})]
    lost = tuple(cut_command(name, arguments, span, state.tools) for name, arguments in calls)
    state.warn("cut_call", "A call was cut off by the end of the reply and not run.", (start, end), lost=lost)
    state.skip(start, end)
    return end


def _payload_at(state: ParserState, position: int) -> dialects.Payload | None:
    """The calls at `position`; None if no notation is recognized within the lookahead.

    The lookahead is the same for streamed and for whole texts, so that both are read alike.
    """
    payload = dialects.read_payload(state.scanner, position)
    limit = _after_blanks(state, position) + _NOTATION_CHARS_MAX
    if payload is None or payload.end <= limit:
        return payload
    shown = TextScanner(state.text[position:limit], final=False)
    return None if dialects.read_payload(shown, 0) is None else payload


def is_final(state: ParserState, payload: dialects.Payload | None, position: int) -> bool:
    """Whether no further text can change what was read at `position`."""
    return state.scanner.final or _is_certain(state, payload, position)


def _is_certain(state: ParserState, payload: dialects.Payload | None, position: int) -> bool:
    if payload is None:
        return len(state.text) >= _after_blanks(state, position) + _NOTATION_CHARS_MAX
    if payload.cut or payload.guessed or not payload.calls or not _is_line_complete(state, payload):
        return False
    return _is_bounded(state, payload) if payload.repaired else _is_ended(state, payload)


def _is_line_complete(state: ParserState, payload: dialects.Payload) -> bool:
    """Whether the lookahead suffices to see that a risky call was read too short."""
    if not state.is_risky(payload):
        return True
    return state.scanner.search(_LINE_OR_LIMIT, payload.end) is not None


def _is_ended(state: ParserState, payload: dialects.Payload) -> bool:
    text, end = state.text, payload.end
    if text.startswith((">", "]", ")"), end - 1):
        # Closed by its own bracket, so nothing that follows belongs to it.
        return True
    following = _after_blanks(state, end)
    if not all(arguments for _, arguments in payload.calls):
        return len(text) >= following + _NOTATION_CHARS_MAX
    if text.startswith("<", following):
        return WHOLE_TAG.match(text, following) is not None
    return len(text) >= following + len("```")


def _is_bounded(state: ParserState, payload: dialects.Payload) -> bool:
    # A broken object ends before the next token.
    text = state.text
    return text.startswith(("}", "]"), payload.end - 1) and bool(
        dialects.LIMIT.match(text, _after_blanks(state, payload.end))
    )


def resume_condition(state: ParserState, position: int) -> SearchTrigger | BracketBalance | None:
    """What new text must contain before the payload at `position` is parsed again."""
    if state.scanner.final:
        return None
    opening = _OPENING.match(state.text, position)
    if opening is None:
        is_tag = dialects.FUNCTION_TAG.match(state.text, _after_blanks(state, position))
        return _TAG_WAKE if is_tag else None
    balance = BracketBalance()
    # Closed already, but not final: what follows it decides.
    return None if balance.feed(state.text[opening.end() - 1 :]) else balance


def _is_followed_by_object(state: ParserState, position: int) -> bool:
    # Another object in the same announcement: `{...};{...}`.
    return state.text.startswith("}", position - 1) and state.text.startswith("{", _after_blanks(state, position))


def warn_unreadable(state: ParserState, start: int, position: int) -> int:
    """Warn that the text after the token at `start` is no call; return `position`."""
    following = _token_after(state, position)
    ended = _after_blanks(state, position) >= len(state.text)
    if not ended and (following is None or dialects.announces_call(following[0])):
        message = 'A tool call could not be read; write it as a tag, for example <get path="..."/>.'
        state.warn("unreadable_call", message, (start, position))
    return position


def on_json(state: ParserState, start: int) -> int:
    """Read a JSON object in the shape of a call, without a token before it."""
    read = dialects.read_json(state.scanner, start, BARE_CHARS_MAX)
    if read and read.cut and state.needs_more(resume_condition(state, start)):
        return start
    if read and not read.cut and isinstance(read.value, dict) and (role := read.value.get("role")) in _OTHERS:
        is_user = role == "user"
        return hallucinated.ignore_rest(state, start) if is_user else hallucinated.skip_message(state, start, read.end)
    if read and read.cut and (payload := _truncated_calls(state, read, start)):
        return warn_truncated(state, payload, start, read.end)
    calls = parse_calls(read.value, wrapped=False) if read and not read.cut else None
    if read is None and not state.scanner.can_spend(start):
        state.warn("unreadable_call", "Too many broken calls came before; this text was not read.", (start, start + 1))
    if read is None or calls is None:
        return start + 1
    payload = dialects.Payload(read.end, calls, read.repaired, over=read.over)
    if not _is_line_complete(state, payload) and state.needs_more():
        return start
    return state.add_calls(payload, (start, read.end))


def _truncated_calls(state: ParserState, read: ReadValue, start: int) -> dialects.Payload | None:
    """A truncated call, or list of calls, without a token before it; None if it is neither."""
    begin = _LIST.match(state.text, start)
    calls = (parse_calls(read_items(state.text[begin.end() - 1 :]), wrapped=False) or []) if begin else []
    name = read.value.get("name") if isinstance(read.value, dict) and len(read.value) > 1 else None
    if calls and all(tool_name(one, state.tools) in state.tools for one, _ in calls):
        cut = (parse_calls(read.value, wrapped=False) or [])[len(calls) :]
        return dialects.Payload(read.end, calls + cut, cut=True, whole=len(calls))
    if not isinstance(name, str) or name not in state.tools:
        return None
    return dialects.Payload(read.end, [parse_call(read.value, wrapped=False) or (name, {})], cut=True)


def on_python(state: ParserState, start: int) -> int:
    """Read a list of Python calls, without a token before it; in a fence it is code."""
    payload = dialects.python_calls(state.scanner, start) if state.depth == 0 else None
    if payload is not None and not is_final(state, payload, start) and state.needs_more(resume_condition(state, start)):
        return start
    if payload is not None and payload.cut and payload.whole and payload.calls[0][0] in state.tools:
        return warn_truncated(state, payload, start, payload.end)
    if payload is None or payload.cut:
        if state.depth == 0 and (found := _PYTHON_CALL.match(state.text, start)) and found[1] in state.tools:
            message = f"A call of {found[1]} could not be read."
            state.warn("unreadable_call", message, found.span(), lost=(Command(found[1]),))
        return start + 1
    return state.add_calls(payload, (start, payload.end))
