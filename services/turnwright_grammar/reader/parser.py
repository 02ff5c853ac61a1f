"""The error-tolerant parser: from a model's reply to commands, warnings and narration.

Theory of operation. One pass from left to right over the text as the model wrote it; nothing is
rewritten first, so every span is exact. The parser jumps from trigger to trigger:

| trigger | what happens |
|---|---|
| three backticks or tildes that begin a line | the fence is parsed as a whole (C25) |
| backticks | an inline code span is skipped: tags in it are inert |
| `*** Begin Patch` | a patch is a `set`, `mv` or `rm` of each of its files |
| `<<<<<<< SEARCH` | a conflict block with a file name is a `set` |
| `<` | our tag, a vendor's token, a function tag, reasoning, or an unknown tool's tag |
| `[TOOL_CALLS]`, `functools[`, `Action:`, `>>>name`, `to=functions.` | a vendor's token |
| `<|im_start|>user`, `<tool_response>`, `[INST]`, `User:`, a line `user` | a hallucinated turn: it is never run |
| `{` or `[` that begins like a call | JSON or Python calls without any token |

Each handler returns the offset to continue at. Each search is amortized (`scanner.TextScanner`) or bounded, so that
hostile text costs linear time.

The same parser reads a reply while it is streamed (`streaming.ReplyReader`): a handler that needs more lookahead
waits, and the parser stops before its trigger and tries again with more text. No further text may change what a
handler has accepted, so the commands are those of the whole text, whatever its division into deltas.

The close of a thought that was never opened makes all before it reasoning: the parser forgets what it found, goes on,
and at the end parses what stands behind the last such close once more, by itself. So no command is certain before the
end.

Source: the seed's response_healing and xml_parser, RU276, RU282 to RU293, C19, C25, C38, C39, C59.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from turnwright_grammar import dialects
from turnwright_grammar.dialects import Payload
from turnwright_grammar.edits import conflicts
from turnwright_grammar.reader import fences, hallucinated, own_tags, vendors
from turnwright_grammar.reader.bodies import THOUGHT_END, WHOLE_TAG
from turnwright_grammar.reader.parser_state import ParserState
from turnwright_grammar.reader.tags import INDENT_CHARS_MAX, begins_line
from turnwright_grammar.reply import COMMANDS_MAX, WARNINGS_MAX, Command, ReadWarning, Reply, Span
from turnwright_grammar.scanner import SearchTrigger, TextScanner
from turnwright_grammar.tools import DEFAULT_TOOLS, resolve

# Messages in the harmony format: `<|channel|>commentary to=functions.get <|message|>{...}<|call|>`.

HEAD_CHARS_MAX: Final = 400
"""Longer than the head of a message, from its first token to `<|message|>`."""

_FIRST = re.compile(r"<\|(?:start|channel)\|>")
_HEAD = re.compile(
    r"(?:<\|start\|>[^<]{0,100})?<\|channel\|>(?P<channel>[^<]{0,200})(?:<\|constrain\|>[^<]{0,40})?<\|message\|>"
)
_TO = re.compile(r"to=(?P<name>[\w.\-]+)")
_RECIPIENT = re.compile(
    r"functions\.(?P<name>[\w.\-]{1,100})(?:\s*<\|channel\|>\w+)?\s*(?:<\|constrain\|>)?\s*(?:json|code)?\s*(?:<\|message\|>)?\s*(?=\{)"
)
_END = re.compile(r"<\|(?:end|start|call|return|channel)\|>")


def on_harmony(state: ParserState, start: int) -> int | None:
    """Handle a message: a call, reasoning (which is skipped), or text; None if no message begins at `start`."""
    if _FIRST.match(state.text, start) is None:
        return None
    head = _HEAD.match(state.text, start)
    if head is None:
        near = len(state.text) < start + HEAD_CHARS_MAX
        return start if near and state.needs_more() else None
    if to := _TO.search(head[0]):
        return _on_call(state, head, to["name"])
    state.skip(*head.span())
    return _on_reasoning(state, head) if "analysis" in head["channel"] else head.end()


def on_recipient(state: ParserState, start: int) -> int:
    """Handle a call whose head lost its tokens: `to=functions.get json{...}`; `start` is at the `=`."""
    head = _RECIPIENT.match(state.text, start + 1)
    if head is None:
        near = len(state.text) < start + HEAD_CHARS_MAX
        return start if near and state.needs_more() else start + 1
    return max(_on_call(state, head, head["name"]), start + 1)


def _on_reasoning(state: ParserState, head: re.Match[str]) -> int:
    closing = state.scanner.search(_END, head.end())
    if closing is None and state.needs_more(SearchTrigger(_END, ">")):
        return head.start()
    end = closing.start() if closing else len(state.text)
    if closing is None and (after := state.end_thought_within(head.end(), end)) is not None:
        return after
    state.skip(head.start(), end)
    return end


def _on_call(state: ParserState, head: re.Match[str], name: str) -> int:
    payload = _payload(state, head.end(), name)
    condition = vendors.resume_condition(state, head.end())
    if not vendors.is_final(state, payload, head.end()) and state.needs_more(condition):
        return head.start()
    if payload is not None and payload.cut:
        return vendors.warn_truncated(state, payload, head.start(), payload.end)
    if payload is None or not payload.calls:
        state.skip(*head.span())
        return vendors.warn_unreadable(state, *head.span())
    return state.add_calls(payload, (head.start(), payload.end))


def _payload(state: ParserState, position: int, name: str) -> Payload | None:
    read = dialects.read_json(state.scanner, position)
    if read is None:
        return None
    if not isinstance(read.value, dict):
        return Payload(read.end, [(name, {})] if read.cut else [], cut=read.cut)
    return Payload(read.end, [(name, read.value)], read.repaired, read.cut, over=read.over)


LOOKAHEAD_CHARS: Final = 64
"""No trigger is longer than this: closer to the end of streamed text, one may be incomplete."""

BARE_CHARS_MAX: Final = 300
BARE_LINES: Final = 3
"""The lookahead for a token that is plain text."""

# The first class finds candidates at full speed; the rest decides which of them are triggers.
TRIGGER = re.compile(
    r"""
    [<`\[{~>*A=\u273f\u25c1\nUHOTFI]
    (?:
        (?<=<)(?: [A-Za-z/|\uff5c] | !-- | (?<!<<)<{4} )
      | (?<=`)
      | (?<=~)~~
      | (?<=>)(?<!>>)>>
      | (?<=\*)\*\*[ ]Begin[ ]Patch
      | (?<=A)ction:
      | (?<=\n)(?:user|human)(?:[ \t\r]*\n|:)
      | (?<=U)(?<!\[U)(?:ser|SER) | (?<=H)(?<!\[H)(?:uman|UMAN)
      | (?<=O)bservation | (?<=[TF])(?:ool|unction)[ ][Rro] | (?<=I)nstruction
      | (?<=\]~)b\]
      | (?<==)(?<=to=)functions\.
      | (?<=\u273f)(?:FUNCTION|RESULT) | (?<=\u25c1)/?think\u25b7
      | (?<=\[)(?: INST\] | /?THINK\] | (?:[Uu]ser|USER|[Hh]uman|HUMAN)\]
        | TOOL_(?:RESULTS?|OUTPUTS?|CONTENT)\] | AVAILABLE_TOOLS\] )
      | (?<=\[)(?: /?TOOL_CALLS?\] | (?:END_)?TOOL_REQUEST\] | (?<=functools\[) | [A-Za-z_][\w.]{0,40}\( )
      | (?<=[\[{])(?<![\w"'\\].)
        \s{0,16}(?:[\[{]\s{0,16})?["'](?:name|function|tool|tool_name|tool_calls?|tool_call_id|tool_args
        |toolUse|toolUseId|functionCall|function_call|function_name|recipient_name|action|type|id|arguments
        |parameters|args|input|role)["']\s{0,4}:
    )
    """,
    re.VERBOSE,
)
CANDIDATE = re.compile(r"[<`\[{~>*A=\u273f\u25c1\nUHOTFI]")
HALF_TRIGGER = re.compile(
    r"""
    [<\[{~>*A=\u273f\u25c1\nUHOTFI]
    (?:
        (?<=<)(?:<{0,8}|!-?) | (?<=~)(?:~|b)? | (?<=\n)(?:[uh][a-z]{0,4}[ \t\r]{0,8})?
      | (?<=>)>{0,4} | (?<=[A=\u273f\u25c1])/?[A-Za-z]{0,10}
      | (?: (?<=[\n\t*][UHOTFI]) | (?<=\A[UHOTFI]) | (?<=[ ]{2}[UHOTFI]) | (?<=\n[ ][UHOTFI]) | (?<=\A[ ][UHOTFI])
          | (?<=\#[ ][UHI]) )[A-Za-z]{0,12}[ ]?
      | (?<=\*)(?:\*[*BeginPatch\ ]{0,14})? | (?<=\[)/?(?:[A-Za-z_][\w.]{0,40})?
      | (?<=[\[{])\s{0,16}(?:[\[{]\s{0,16})?(?:["']\w{0,20}["']?\s{0,4})?
    )\Z
    """,
    re.VERBOSE,
)
_CUT = (
    "The reply was cut off here, as at the model's output limit; from here on nothing was run. Send it again, in parts."
)
_THOUGHT = "What stands before the close of a thought was taken as reasoning; nothing of it was run."
_NOISE = re.compile(r"</?s>|<(?:eos|bos|end_of_turn|start_of_turn)>")
_BRACKET = re.compile(r"\[(?:/?TOOL_CALLS?|(?:END_)?TOOL_REQUEST)\]")


def read_reply(
    text: str | None,
    *,
    known_tools: frozenset[str] = DEFAULT_TOOLS,
    commands_max: int = COMMANDS_MAX,
    is_cut: bool = False,
) -> Reply:
    """Parse a model's reply; `is_cut`: its vendor has truncated it (see `discard_truncated`).

    Commands come in the order of the text and are resolved (see `tools.resolve`). Every repair and
    every call that could not be read is a warning; at most 99 warnings are kept. Commands over
    `commands_max` are counted in `dropped`, with one warning. Never raises; linear in the length of the text.

    Source: RU276, RU284, RU293.
    """
    text = text or ""
    state = ParserState(TextScanner(text, final=not is_cut), known_tools, parse, commands_max)
    parse(state)
    return finish_reply(state, text, is_cut=is_cut)


def read_call(command: Command, known_tools: frozenset[str] = DEFAULT_TOOLS) -> Command:
    """A command that a client wrote as name, attributes and body, resolved: its body may be in the shape of tags.

    It may hold parameters as tags, as in a reply. Without attributes, it may also be the call itself, in any dialect.
    Never raises.
    """
    name, attributes, body = command.name, dict(command.attributes), command.body
    if not attributes and body.lstrip().startswith("<"):
        reply = read_reply(body, known_tools=known_tools)
        if [one.name for one in reply.commands] == [name] and not reply.narration:
            return reply.commands[0]
    attributes, body = own_tags.with_parameters(name, attributes, body)
    return resolve(Command(name, attributes, body))


def discard_truncated(state: ParserState) -> None:
    """Run nothing from the first unterminated tag, fence or call of a truncated reply on.

    That is where the parser waits for more text. The rest is parsed only to see whether it is narration. Source: C54.
    """
    start, mark, thoughts = state.position, state.savepoint(), len(state.thought_ends)
    if start == len(state.text):
        return
    state.extend("", final=True)
    state.cut_at = start
    parse(state)
    if len(state.thought_ends) > thoughts:
        # All of this was reasoning.
        return
    whole = state.commands[mark[0] : state.complete_commands]
    lost = [command for command in state.commands[mark[0] + len(whole) :] if command.name != "think"]
    lost += [command for warning in state.warnings[mark[1] :] for command in warning.lost]
    after = state.savepoint()
    is_narration = after[:2] == mark[:2] and state.deferred == state.deferred[: mark[4]]
    state.rollback(mark)
    state.commands.extend(whole)
    state.position = len(state.text)
    state.warn("cut_reply", _CUT, (start, state.position), lost=tuple(lost))
    if not is_narration:
        state.skip(start, state.position)


def finish_reply(state: ParserState, rest: str, *, is_cut: bool) -> Reply:
    """The reply at the end of the parse. `rest` is the end of its text, at least from the last thought on (C59).

    What stands behind such a thought is parsed by itself, as if the reply began there: so it reads the same when it is
    stored without the thought.
    """
    size = state.offset + len(state.text)
    if is_cut:
        discard_truncated(state)
    thought_ends: list[Span] = []
    while state.thought_ends and not state.is_stopped():
        thought_ends += state.thought_ends
        start = thought_ends[-1][1]
        scanner = TextScanner(rest[len(rest) - (size - start) :], final=not is_cut)
        is_stopped = state.is_stopped
        state = ParserState(scanner, state.tools, parse, state.commands_max, start)
        state.is_stopped = is_stopped
        parse(state)
        if is_cut:
            discard_truncated(state)
    state.resolve_fences(is_cut=is_cut)
    commands, commands_max = state.commands, state.commands_max
    dropped = max(0, len(commands) - commands_max)
    if dropped:
        cut = commands[commands_max].span
        message = f"Only the first {commands_max} commands were taken; {dropped} were dropped."
        state.warnings.append(ReadWarning("too_many_commands", message, cut))
    if thought_ends:
        state.warnings.append(ReadWarning("unopened_thought", _THOUGHT, (0, thought_ends[-1][1])))
    narration, spans = state.narration()
    return Reply(
        tuple(commands[:commands_max]), _capped(state.warnings), narration, dropped, tuple(thought_ends), spans
    )


def _capped(warnings: list[ReadWarning]) -> tuple[ReadWarning, ...]:
    warnings.sort(key=lambda warning: (warning.kind != "too_many_commands", warning.span))
    return tuple(sorted(warnings[:WARNINGS_MAX], key=lambda warning: warning.span))


def parse(state: ParserState) -> None:
    """Parse the text from the current position on: call the handler of each trigger."""
    state.is_waiting = False
    search, text, final = TRIGGER.search, state.text, state.scanner.final
    while not state.is_stopped() and (found := search(text, state.position)):
        start = state.position = found.start()
        char = text[start]
        handler = _HANDLERS[char]
        if state.fence is not None and THOUGHT_END.match(text, start):
            handler = fences.on_thought_end
        elif state.fence is not None and char not in "`~<>":
            state.position = start + 1
            continue
        mark = None if final else state.savepoint()
        end = hallucinated.inert_line_end(state, start) if state.fence is None and char not in "`~" else None
        if end is None:
            end = handler(state, start)
        if state.is_waiting and mark is not None:
            state.rollback(mark)
            return
        state.position = end if end > start else start + 1
    state.position = len(text) if final else _partial_trigger(text, state.position)


def _partial_trigger(text: str, position: int) -> int:
    """The start of a trigger that the end of the text may have cut off."""
    found = HALF_TRIGGER.search(text, max(position, len(text) - LOOKAHEAD_CHARS))
    return found.start() if found else len(text)


def _on_angle(state: ParserState, start: int) -> int:
    # The fast path: most replies consist of well-formed calls.
    plain = state.bodies.simple_call(start) if state.fence is None else None
    return _on_tag(state, start) if plain is None else own_tags.on_simple_call(state, plain)


def _on_tag(state: ParserState, start: int) -> int:
    text = state.text
    if text.startswith("<<", start):
        return _on_line(state, start, conflicts.HEAD, fences.on_conflict)
    if state.fence is not None:
        return start + 1
    if text.startswith("<!", start):
        return own_tags.on_comment(state, start)
    if not state.scanner.final and not WHOLE_TAG.match(text, start) and state.needs_more():
        return start
    if opener := state.bodies.any_tool.match(text, start):
        return own_tags.on_own_tag(state, opener)
    return _on_special(state, start)


def _on_special(state: ParserState, start: int) -> int:
    text = state.text
    for handler in (own_tags.on_thought_end, hallucinated.on_token, on_harmony):
        if (end := handler(state, start)) is not None:
            return end
    if found := _NOISE.match(text, start):
        state.skip(*found.span())
        return found.end()
    if dialects.FUNCTION_TAG.match(text, start):
        return vendors.on_payload(state, start, start)
    if found := own_tags.REASONING.match(text, start):
        return own_tags.on_reasoning(state, found)
    if found := dialects.TOKEN.match(text, start):
        return vendors.on_vendor(state, found)
    return own_tags.on_unknown_tool(state, start)


def _on_close(state: ParserState, start: int) -> int:
    if state.fence is not None or state.text.startswith(">>>>>", start):
        return _on_line(state, start, conflicts.TAIL, fences.on_tail)
    return _on_bare(state, start)


def _on_bare(state: ParserState, start: int) -> int:
    """Handle a vendor's token of plain text at the start of a line, such as `Action:`."""
    text = state.text
    if (end := hallucinated.on_token(state, start)) is not None:
        return end
    begin = start - 2 if start >= 2 and text.startswith("**", start - 2) else start
    if not begins_line(text, begin):
        return start + 1
    limit = start + BARE_CHARS_MAX
    if len(text) < limit and text.count("\n", start, limit) < BARE_LINES and state.needs_more():
        return start
    found = dialects.TOKEN.match(text, begin)
    return vendors.on_vendor(state, found) if found else start + 1


def _on_line(
    state: ParserState, start: int, pattern: re.Pattern[str], handler: Callable[[ParserState, re.Match[str]], int]
) -> int:
    """Call a handler with the line of `start` if the pattern matches it."""
    text = state.text
    if not begins_line(text, start):
        return start + 1
    line_end = text.find("\n", start, start + INDENT_CHARS_MAX)
    if line_end < 0 and len(text) < start + INDENT_CHARS_MAX and state.needs_more(fences.LINE_WAKE):
        return start
    found = pattern.match(text, text.rfind("\n", 0, start) + 1)
    return handler(state, found) if found else start + 1


def _on_tilde(state: ParserState, start: int) -> int:
    if state.text.startswith("]~b]", start - 1) and start:
        end = hallucinated.on_token(state, start - 1)
        return start + 1 if end is None else end
    return fences.on_marks(state, start)


def _on_bracket(state: ParserState, start: int) -> int:
    text = state.text
    for handler in (own_tags.on_thought_end, hallucinated.on_token):
        if (end := handler(state, start)) is not None:
            return end
    if found := own_tags.REASONING.match(text, start):
        return own_tags.on_reasoning(state, found)
    if found := _BRACKET.match(text, start):
        return vendors.on_vendor(state, found)
    if text.startswith("functools", start - 9) and start >= 9:
        return vendors.on_payload(state, start - 9, start)
    if text[start + 1].isalpha() or text[start + 1] == "_":
        return vendors.on_python(state, start) if begins_line(text, start) else start + 1
    return vendors.on_json(state, start)


_HANDLERS: Mapping[str, Callable[[ParserState, int], int]] = {
    "`": fences.on_marks,
    "~": _on_tilde,
    "<": _on_angle,
    ">": _on_close,
    "[": _on_bracket,
    "{": vendors.on_json,
    "*": fences.on_patch,
    "A": _on_bare,
    "\u273f": _on_bare,
    "\u25c1": _on_special,
    "=": on_recipient,
    "\n": hallucinated.on_line_end,
    **dict.fromkeys("UHOTFI", hallucinated.on_label),
}
