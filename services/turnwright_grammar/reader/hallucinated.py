"""Hallucinated turns: messages of users, tool results and observations that the model writes itself; and quotes.

Models continue what they were trained on: they make up the result of their call, or the next message of the user.
Commands in it, and after a made-up turn, are not run. Block quotes and indented code are inert, too.

| written | inert |
|---|---|
| `<|im_start|>user`, `[INST]`, `User:` at the start of a line, and their kin | all to the end of the reply |
| `<tool_response>`, `[TOOL_RESULTS]`, `<|observation|>` and their kin | up to their close, or to the end |
| `user` on a line of its own, `<user>`, behind a command | all to the end of the reply |
| `<output>`, `<result>`, `<system>` and their kin behind a command | up to their close, or to the end |
| `Observation:` at the start of a line | its paragraph; behind a command all to the end |
| `> ` or four blanks at the start of a line, as in Markdown | the line; vendors' barred tokens stand in no code |

Source: C55.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from turnwright_grammar.reader.parser_state import ParserState
from turnwright_grammar.reader.tags import INDENT_CHARS_MAX, begins_line
from turnwright_grammar.scanner import SearchTrigger

LOOKAHEAD_CHARS: Final = 100
"""Longer than the longest head of a turn or a result."""

_OTHERS = r"(?:user|human|system|tool|tools|function|ipython|observation|environment|developer)"
_BAR = r"[|\uff5c]"
_TURN = re.compile(
    rf"""
      <{_BAR}(?:im_start|start|turn|start_of_role|start_header_id|im_user|im_system){_BAR}?>\s{{0,4}}
        (?:(?:functions|tool|browser|python)[.:][^<>\n]{{1,60}}|{_OTHERS})\b
    | <start_of_turn>\s{{0,4}}{_OTHERS}\b
    | <{_BAR}(?:user|human|system|tool|ipython|function|environment|im_user|USER_TOKEN|SYSTEM_TOKEN){_BAR}>
    | \[INST\] | \u273fRESULT\u273f | \]~b\](?:user|tool|system)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MARKUP = re.compile(
    r"<(?:user|human)>|\[(?:user|human)\]|<(?P<name>results?|output|stdout|stderr|system|system-reminder)>",
    re.IGNORECASE,
)
"""Plain words, which count only after a command and at the start of a line."""
_TURN_HEAD = re.compile(
    rf"<{_BAR}(?:im_start|start|turn|start_of_role|start_header_id){_BAR}?>|<start_of_turn>|\]~b\]", re.IGNORECASE
)
_RESULT = re.compile(
    rf"""
      <(?:{_BAR}|start_)?(?:START_)?(?:\w{{1,20}}:)?
        (?P<name>(?:tool|function|call|invoke)[_\u2581]?(?:response|result|output|return)s?(?:_section)?|observation|available_tools)
        (?:[_\u2581](?:begin|start))?{_BAR}?>
    | \[(?P<bracket>TOOL_RESULTS?|AVAILABLE_TOOLS|TOOL_OUTPUTS?|TOOL_CONTENT)\]
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TURN_LABEL = re.compile(
    r"(?:User|Human|USER|HUMAN)(?:\*\*)?:|(?<=\#[ ])(?:User|Human|Instruction)s?:?[ \t]*(?=\n)|(?<=\#[ ])Instructions?:"
)
_RESULT_LABEL = re.compile(r"(?:Observation|(?:Tool|Function)[ ](?:result|output|response)s?)(?:\*\*)?:", re.IGNORECASE)
_BEFORE_LABEL = re.compile(r"[ \t]*(?:\#{1,6}[ ]|\*\*)?")
_PARAGRAPH_END = re.compile(r"\n(?=[ \t]*\n|(?:Thought|Action|Final Answer):)")
_NEVER = SearchTrigger(re.compile(r"(?!)"), "\0")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
_QUOTE = re.compile(r"[ ]{0,3}>")
_INERT_PREFIX = re.compile(r"[ \t>]*+")
_INDENT = re.compile(r"[ ]{4}|[ ]{0,3}\t")
# Tokens that no code holds, and tags of other agents' tools, which are reported and never run.
_BARRED = re.compile(rf"</?{_BAR}|</?(?!tool|func|invoke|action)[a-z]+_[a-z_]+>")
_MESSAGE = "Write only your own messages; commands in this one were not run."
_LINE_CHARS_MAX = 2_000
_LINES_MAX = 40
_DEPTH_MAX = 2


def on_token(state: ParserState, start: int) -> int | None:
    """Skip a hallucinated turn or result that a vendor's token or a tag begins; None if there is none."""
    text = state.text
    if _TURN_HEAD.match(text, start) and len(text) < start + LOOKAHEAD_CHARS and state.needs_more():
        return start
    if _TURN.match(text, start):
        return ignore_rest(state, start)
    found = _RESULT.match(text, start)
    name = found["name"] or found["bracket"] if found else None
    if found is None and (found := _markup(state, start)):
        name = found["name"]
    if found is None:
        return None
    if name is None:
        return ignore_rest(state, start)
    closing = state.scanner.search(_close_of(name.lower()), found.end())
    if closing is None and state.needs_more():
        return start
    end = closing.end() if closing else len(text)
    return _skip_hallucinated(state, start, end, "do not write results of tools yourself")


def _markup(state: ParserState, start: int) -> re.Match[str] | None:
    found = _MARKUP.match(state.text, start)
    return found if found and state.has_called and begins_line(state.text, start) else None


def on_label(state: ParserState, start: int) -> int:
    """Skip a hallucinated turn or observation that a label at the start of a line begins, such as `User:`."""
    text = state.text
    line = text.rfind("\n", max(0, start - INDENT_CHARS_MAX), start) + 1
    if _BEFORE_LABEL.fullmatch(text, line, start) is None:
        return start + 1
    if len(text) < start + LOOKAHEAD_CHARS and "\n" not in text[start:] and state.needs_more():
        return start
    found = _RESULT_LABEL.match(text, start)
    if _TURN_LABEL.match(text, start) or (found and state.has_called):
        # The call has not been answered yet, so this result is made up, and so is what builds on it.
        return ignore_rest(state, start)
    return start + 1 if found is None else _skip_observation(state, found)


def on_line_end(state: ParserState, start: int) -> int:
    """Skip a hallucinated turn whose head has lost its tokens: `user` on a line of its own, after a command."""
    if not state.has_called:
        return start + 1
    return ignore_rest(state, start + 1)


def _skip_observation(state: ParserState, label: re.Match[str]) -> int:
    ending = state.scanner.search(_PARAGRAPH_END, label.end())
    if ending is None and state.needs_more():
        return label.start()
    end = ending.start() if ending else len(state.text)
    return _skip_hallucinated(state, label.start(), end, "do not write observations yourself")


def inert_line_end(state: ParserState, start: int) -> int | None:
    """The end of the line of `start` if it is in a block quote or indented code, else None."""
    text = state.text
    low = max(0, start - _LINE_CHARS_MAX)
    line = text.rfind("\n", low, start) + 1
    if (line == 0 and low > 0) or text[line] not in " \t>":
        return None
    is_quote = _QUOTE.match(text, line, start) is not None
    if not is_quote and not (_INDENT.match(text, line) and _BARRED.match(text, start) is None and _is_code(text, line)):
        return None
    end = text.find("\n", start)
    if end < 0 and state.needs_more():
        return start
    end = end if end >= 0 else len(text)
    # From the start of the line: with streamed text, the parser may get here at a later trigger.
    begin = _INERT_PREFIX.match(text, line).end()  # type: ignore[union-attr]
    inner = state.parse_nested(text[begin:end], begin) if state.depth < _DEPTH_MAX else None
    if inner and (after := state.adopt_thought_ends(inner)) is not None:
        return after
    if inner and inner.commands:
        place, ignored = "a block quote" if is_quote else "indented code", sum(one.known for one in inner.commands)
        state.warn("inert_code", f"A command inside {place} was not run.", (begin, end), ignored)
    return end


def _is_code(text: str, line: int) -> bool:
    """Whether an indented line is code: after a blank line, and not part of a list item."""
    low = max(0, line - _LINE_CHARS_MAX)
    is_separate = line == 0
    for _ in range(_LINES_MAX):
        if line <= low:
            break
        before = text.rfind("\n", low, line - 1) + 1
        above, line = text[before : line - 1], before
        if not above.strip():
            is_separate = True
        elif _INDENT.match(above):
            continue
        else:
            return is_separate and _LIST_ITEM.match(above) is None
    return is_separate


def ignore_rest(state: ParserState, start: int) -> int:
    """Run nothing from `start` on, where a hallucinated turn begins."""
    # To the end of the reply: what follows answers a message that was never sent.
    if state.needs_more(_NEVER):
        return start
    return _skip_hallucinated(state, start, len(state.text), "do not write turns of others")


def skip_message(state: ParserState, start: int, end: int) -> int:

    state.warn("invented", _MESSAGE, (start, end))
    return end


def _skip_hallucinated(state: ParserState, start: int, end: int, why: str) -> int:
    """Continue after hallucinated text; warn if it holds a command."""
    is_nested = state.depth < _DEPTH_MAX
    if is_nested and not state.scanner.can_spend(start) and (after := state.end_thought_within(start, end)) is not None:
        return after
    inner = state.parse_nested(state.text[start + 1 : end], start + 1) if is_nested else None
    if inner and (after := state.adopt_thought_ends(inner)) is not None:
        # What stands behind is read again.
        state.scanner.spend(end - after)
        return after
    if inner is None or inner.commands or any(warning.kind == "invented" for warning in inner.warnings):
        state.warn("invented", f"Nothing of this was run: {why}. Wait for what really comes.", (start, end))
    return end


@lru_cache(maxsize=64)
def _close_of(name: str) -> re.Pattern[str]:
    base = re.escape(name)
    return re.compile(
        rf"<{_BAR}?(?:/|end[_\u2581])(?:\w{{1,20}}:)?{base}{_BAR}?>|<{_BAR}?{base}[_\u2581]end{_BAR}?>|\[/{base}\]",
        re.IGNORECASE,
    )
