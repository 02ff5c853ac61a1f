"""What a model writes for others: a user's turn, an observation, the results of tools, a list of tools; quotes.

Models go on with what they were trained on: they invent the answer to their call, or the next message of the user.
None of that fires, nor does anything behind an invented turn. Block quotes and indented code are inert, too.

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

from turnwright_grammar.find import SearchTrigger
from turnwright_grammar.reader.reading import Reading
from turnwright_grammar.reader.tags import INDENT_CHARS_MAX, begins_line

SHOWN_CHARS: Final = 100
"""How much of the text must be there to tell a turn or a result; the longest head is shorter."""

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
"""Plain words, which say it only behind a command and at the start of a line."""
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
_MESSAGE = "A message of somebody else is not yours to write; nothing of it was run."
_LINE_CHARS_MAX = 2_000
_LINES_MAX = 40
_DEPTH_MAX = 2


def on_token(reading: Reading, start: int) -> int | None:
    """Step over an invented turn or result that a vendor's token or a tag begins at `start`; None where none does."""
    text = reading.text
    if _TURN_HEAD.match(text, start) and len(text) < start + SHOWN_CHARS and reading.wait():
        return start
    if _TURN.match(text, start):
        return to_the_end(reading, start)
    found = _RESULT.match(text, start)
    name = found["name"] or found["bracket"] if found else None
    if found is None and (found := _markup(reading, start)):
        name = found["name"]
    if found is None:
        return None
    if name is None:
        return to_the_end(reading, start)
    closing = reading.finder.search(_close_of(name.lower()), found.end())
    if closing is None and reading.wait():
        return start
    end = closing.end() if closing else len(text)
    return _passed(reading, start, end, "the results of tools are not yours to write")


def _markup(reading: Reading, start: int) -> re.Match[str] | None:
    found = _MARKUP.match(reading.text, start)
    return found if found and reading.has_called and begins_line(reading.text, start) else None


def on_label(reading: Reading, start: int) -> int:
    """Step over an invented turn or observation that a word at the start of a line begins, such as `User:`."""
    text = reading.text
    line = text.rfind("\n", max(0, start - INDENT_CHARS_MAX), start) + 1
    if _BEFORE_LABEL.fullmatch(text, line, start) is None:
        return start + 1
    if len(text) < start + SHOWN_CHARS and "\n" not in text[start:] and reading.wait():
        return start
    found = _RESULT_LABEL.match(text, start)
    if _TURN_LABEL.match(text, start) or (found and reading.has_called):
        # What was called has not answered yet: the answer is invented, and so is what builds on it.
        return to_the_end(reading, start)
    return start + 1 if found is None else _observed(reading, found)


def on_line_end(reading: Reading, start: int) -> int:
    """Step over an invented turn whose head has lost its tokens: `user` on a line of its own, behind a command."""
    if not reading.has_called:
        return start + 1
    return to_the_end(reading, start + 1)


def _observed(reading: Reading, label: re.Match[str]) -> int:
    ending = reading.finder.search(_PARAGRAPH_END, label.end())
    if ending is None and reading.wait():
        return label.start()
    end = ending.start() if ending else len(reading.text)
    return _passed(reading, label.start(), end, "an observation is not yours to write")


def inert_line_end(reading: Reading, start: int) -> int | None:
    """Where the line ends that `start` stands on, if it is of a block quote or of indented code; else None."""
    text = reading.text
    low = max(0, start - _LINE_CHARS_MAX)
    line = text.rfind("\n", low, start) + 1
    if (line == 0 and low > 0) or text[line] not in " \t>":
        return None
    is_quote = _QUOTE.match(text, line, start) is not None
    if not is_quote and not (_INDENT.match(text, line) and _BARRED.match(text, start) is None and _is_code(text, line)):
        return None
    end = text.find("\n", start)
    if end < 0 and reading.wait():
        return start
    end = end if end >= 0 else len(text)
    # From the begin of the line, because a reader that gets it in pieces may come to it at a later trigger.
    begin = _INERT_PREFIX.match(text, line).end()  # type: ignore[union-attr]
    if reading.nested(text[begin:end], begin).commands if reading.depth < _DEPTH_MAX else False:
        place = "a block quote" if is_quote else "indented code"
        reading.warn("inert_code", f"A command inside {place} was not run.", (begin, end))
    return end


def _is_code(text: str, line: int) -> bool:
    """Whether an indented line is code: below a blank line, and not below an item of a list."""
    low = max(0, line - _LINE_CHARS_MAX)
    is_apart = line == 0
    for _ in range(_LINES_MAX):
        if line <= low:
            break
        before = text.rfind("\n", low, line - 1) + 1
        above, line = text[before : line - 1], before
        if not above.strip():
            is_apart = True
        elif _INDENT.match(above):
            continue
        else:
            return is_apart and _LIST_ITEM.match(above) is None
    return is_apart


def to_the_end(reading: Reading, start: int) -> int:
    """Run nothing from `start` on, where somebody else's turn begins."""
    # Only the end of the reply ends it: what follows is the answer to something that nobody said.
    if reading.wait(_NEVER):
        return start
    return _passed(reading, start, len(reading.text), "the turn of somebody else is not yours to write")


def passed(reading: Reading, start: int, end: int) -> int:
    """Go on behind a message of somebody else."""
    reading.warn("invented", _MESSAGE, (start, end))
    return end


def _passed(reading: Reading, start: int, end: int, why: str) -> int:
    """Go on behind what was invented; say so where it holds a command."""
    inner = None if reading.depth >= _DEPTH_MAX else reading.nested(reading.text[start + 1 : end], start + 1)
    if inner is None or inner.commands or any(warning.kind == "invented" for warning in inner.warnings):
        reading.warn("invented", f"Nothing of this was run: {why}. Wait for what really comes.", (start, end))
    return end


@lru_cache(maxsize=64)
def _close_of(name: str) -> re.Pattern[str]:
    base = re.escape(name)
    return re.compile(
        rf"<{_BAR}?(?:/|end[_\u2581])(?:\w{{1,20}}:)?{base}{_BAR}?>|<{_BAR}?{base}[_\u2581]end{_BAR}?>|\[/{base}\]",
        re.IGNORECASE,
    )
