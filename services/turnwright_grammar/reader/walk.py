"""The tolerant reader: a model's reply becomes commands, warnings and narration.

Theory of operation. One walk from left to right over the text as the model wrote it; nothing is
rewritten first, so every span is true. The walk jumps from trigger to trigger:

| trigger | what happens |
|---|---|
| three backticks or tildes that begin a line | the fence is judged as a whole (C25) |
| backticks | an inline code span is stepped over: tags in it are inert |
| `*** Begin Patch` | a patch is a `set`, `mv` or `rm` of each of its files |
| `<<<<<<< SEARCH` | a conflict block with a file name is a `set` |
| `<` | our tag, a vendor's token, a function tag, reasoning, or a foreign tool's tag |
| `[TOOL_CALLS]`, `functools[`, `Action:`, `>>>name`, `to=functions.` | a vendor's token |
| `<|im_start|>user`, `<tool_response>`, `[INST]`, `User:`, a line `user` | written for others: it never fires |
| `{` or `[` that begins like a call | JSON or Python calls without any token |

Each handler returns the offset to go on from, and each search behind it is amortised (`find.Finder`)
or bounded, so that hostile text costs linear time.

The same walk reads a reply that is still being written (`streaming.ReplyReader`): a handler that cannot be sure
yet waits, the walk stops before its trigger and tries again when more text has come. What a handler
is sure of, no further text may change; so the commands come in the end exactly as the whole text yields
them, however it was cut.

Source: the seed's response_healing and xml_parser, RU276, RU282 to RU293, C19, C25, C38, C39.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from turnwright_grammar import dialects
from turnwright_grammar.edits import conflicts
from turnwright_grammar.find import Finder
from turnwright_grammar.reader import fences, harmony, invented, own_tags, vendors
from turnwright_grammar.reader.bodies import TAG_SHOWN
from turnwright_grammar.reader.reading import Reading
from turnwright_grammar.reader.tags import INDENT_CHARS_MAX, begins_line
from turnwright_grammar.reply import COMMANDS_MAX, WARNINGS_MAX, ReadWarning, Reply
from turnwright_grammar.tools import DEFAULT_TOOLS

LOOKAHEAD_CHARS: Final = 64
"""No trigger is longer than this: nearer to the end of an unfinished text, one may be half there."""

BARE_CHARS_MAX: Final = 300
BARE_LINES: Final = 3
"""How much of a token that is plain text must be there to tell it."""

# The first class finds candidates at full speed; what follows tells triggers among them.
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
      | (?<=\u273f)(?:FUNCTION|RESULT) | (?<=\u25c1)think\u25b7
      | (?<=\[)(?: INST\] | THINK\] | (?:[Uu]ser|USER|[Hh]uman|HUMAN)\]
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
      | (?<=>)>{0,4} | (?<=[A=\u273f\u25c1])[A-Za-z]{0,10}
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
_NOISE = re.compile(r"</?s>|<(?:eos|bos|end_of_turn|start_of_turn)>|</think(?:ing)?>")
_BRACKET = re.compile(r"\[(?:/?TOOL_CALLS?|(?:END_)?TOOL_REQUEST)\]")


def read_reply(
    text: str | None,
    *,
    known_tools: frozenset[str] = DEFAULT_TOOLS,
    commands_max: int = COMMANDS_MAX,
    is_cut: bool = False,
) -> Reply:
    """Return what a model's reply asks for; `is_cut` says that its vendor cut it off (see `cut_off`).

    Commands come in the order of the text and are resolved (see `tools.resolve`). Every repair and
    every call that could not be read is a warning; at most 99 warnings are kept. Commands over
    `commands_max` are counted in `dropped` and announced by one warning. Never raises, whatever
    the text; linear in its length.

    Source: RU276, RU284, RU293.
    """
    reading = Reading(Finder(text or "", final=not is_cut), known_tools, walk, commands_max)
    walk(reading)
    if is_cut:
        cut_off(reading)
    return concluded(reading, is_cut=is_cut)


def cut_off(reading: Reading) -> None:
    """Run nothing of what was still open when the vendor cut the reply off, nor what stands behind that.

    What the walk was sure of before the end, more text could not have changed; where it waits is the first tag, fence
    or call without an end. The rest is read only to tell whether it is narration. Source: C54.
    """
    start, mark = reading.position, reading.mark()
    if start == len(reading.text):
        return
    reading.extend("", final=True)
    reading.cut_at = start
    walk(reading)
    whole = reading.commands[mark[0] : reading.whole_to]
    said = reading.mark()
    is_narration = said[:2] == mark[:2] and reading.deferred == reading.deferred[: mark[4]]
    reading.reset(mark)
    reading.commands.extend(whole)
    reading.position = len(reading.text)
    reading.warn("cut_reply", _CUT, (start, reading.position))
    if not is_narration:
        reading.drop(start, reading.position)


def concluded(reading: Reading, *, is_cut: bool = False) -> Reply:
    """Return the reply of a walk that has come to its end."""
    reading.conclude(is_cut=is_cut)
    commands, commands_max = reading.commands, reading.commands_max
    dropped = max(0, len(commands) - commands_max)
    if dropped:
        cut = commands[commands_max].span
        message = f"Only the first {commands_max} commands were taken; {dropped} were dropped."
        reading.warnings.append(ReadWarning("too_many_commands", message, cut))
    return Reply(tuple(commands[:commands_max]), _capped(reading.warnings), reading.narration().strip(), dropped)


def _capped(warnings: list[ReadWarning]) -> tuple[ReadWarning, ...]:
    warnings.sort(key=lambda warning: (warning.kind != "too_many_commands", warning.span))
    return tuple(sorted(warnings[:WARNINGS_MAX], key=lambda warning: warning.span))


def walk(reading: Reading) -> None:
    """Go over a reading's text from its position on, handing each trigger to its handler."""
    reading.waiting = False
    search, text, final = TRIGGER.search, reading.text, reading.finder.final
    while found := search(text, reading.position):
        start = reading.position = found.start()
        char = text[start]
        if reading.fence is not None and char not in "`~<>":
            reading.position = start + 1
            continue
        mark = None if final else reading.mark()
        end = invented.inert_line_end(reading, start) if reading.fence is None and char not in "`~" else None
        if end is None:
            end = _HANDLERS[char](reading, start)
        if reading.waiting and mark is not None:
            reading.reset(mark)
            return
        reading.position = end if end > start else start + 1
    reading.position = len(text) if final else _held(text, reading.position)


def _held(text: str, position: int) -> int:
    """Where a trigger may have begun that the end of the text cuts off."""
    found = HALF_TRIGGER.search(text, max(position, len(text) - LOOKAHEAD_CHARS))
    return found.start() if found else len(text)


def _on_angle(reading: Reading, start: int) -> int:
    # A healthy reply is made of plain calls: these need not be taken apart.
    plain = reading.bodies.plain(start) if reading.fence is None else None
    return _on_tag(reading, start) if plain is None else own_tags.on_plain(reading, plain)


def _on_tag(reading: Reading, start: int) -> int:
    text = reading.text
    if text.startswith("<<", start):
        return _on_line(reading, start, conflicts.HEAD, fences.on_conflict)
    if reading.fence is not None:
        return start + 1
    if text.startswith("<!", start):
        return own_tags.on_comment(reading, start)
    if not reading.finder.final and not TAG_SHOWN.match(text, start) and reading.wait():
        return start
    if opener := reading.bodies.any_tool.match(text, start):
        return own_tags.on_own_tag(reading, opener)
    return _on_special(reading, start)


def _on_special(reading: Reading, start: int) -> int:
    text = reading.text
    for handler in (invented.on_token, harmony.on_harmony):
        if (end := handler(reading, start)) is not None:
            return end
    if found := _NOISE.match(text, start):
        reading.drop(*found.span())
        return found.end()
    if dialects.FUNCTION_TAG.match(text, start):
        return vendors.on_payload(reading, start, start)
    if found := own_tags.REASONING.match(text, start):
        return own_tags.on_reasoning(reading, found)
    if found := dialects.TOKEN.match(text, start):
        return vendors.on_vendor(reading, found)
    return own_tags.on_foreign(reading, start)


def _on_close(reading: Reading, start: int) -> int:
    if reading.fence is not None or reading.text.startswith(">>>>>", start):
        return _on_line(reading, start, conflicts.TAIL, fences.on_tail)
    return _on_bare(reading, start)


def _on_bare(reading: Reading, start: int) -> int:
    """Take a vendor's token that begins a line and is plain text, such as `Action:`."""
    text = reading.text
    if (end := invented.on_token(reading, start)) is not None:
        return end
    begin = start - 2 if start >= 2 and text.startswith("**", start - 2) else start
    if not begins_line(text, begin):
        return start + 1
    limit = start + BARE_CHARS_MAX
    if len(text) < limit and text.count("\n", start, limit) < BARE_LINES and reading.wait():
        return start
    found = dialects.TOKEN.match(text, begin)
    return vendors.on_vendor(reading, found) if found else start + 1


def _on_line(
    reading: Reading, start: int, pattern: re.Pattern[str], handler: Callable[[Reading, re.Match[str]], int]
) -> int:
    """Hand the whole line that `start` is on to a handler, if it is such a line."""
    text = reading.text
    if not begins_line(text, start):
        return start + 1
    line_end = text.find("\n", start, start + INDENT_CHARS_MAX)
    if line_end < 0 and len(text) < start + INDENT_CHARS_MAX and reading.wait(fences.LINE_WAKE):
        return start
    found = pattern.match(text, text.rfind("\n", 0, start) + 1)
    return handler(reading, found) if found else start + 1


def _on_tilde(reading: Reading, start: int) -> int:
    if reading.text.startswith("]~b]", start - 1) and start:
        end = invented.on_token(reading, start - 1)
        return start + 1 if end is None else end
    return fences.on_marks(reading, start)


def _on_bracket(reading: Reading, start: int) -> int:
    text = reading.text
    end = invented.on_token(reading, start)
    if end is not None:
        return end
    if found := own_tags.REASONING.match(text, start):
        return own_tags.on_reasoning(reading, found)
    if found := _BRACKET.match(text, start):
        return vendors.on_vendor(reading, found)
    if text.startswith("functools", start - 9) and start >= 9:
        return vendors.on_payload(reading, start - 9, start)
    if text[start + 1].isalpha() or text[start + 1] == "_":
        return vendors.on_python(reading, start) if begins_line(text, start) else start + 1
    return vendors.on_json(reading, start)


_HANDLERS: Mapping[str, Callable[[Reading, int], int]] = {
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
    "=": harmony.on_recipient,
    "\n": invented.on_line_end,
    **dict.fromkeys("UHOTFI", invented.on_label),
}
