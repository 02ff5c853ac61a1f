"""The tolerant reader: a model's reply becomes commands, warnings and narration.

Theory of operation. One walk from left to right over the text as the model wrote it; nothing is
rewritten first, so every span is true. Before the walk one pass finds all tags of known tools and
pairs them (`tags`, `pairing`). The walk jumps from trigger to trigger:

| trigger | what happens |
|---|---|
| a line that opens a code fence | the fence is judged as a whole (C25) |
| backticks | an inline code span is stepped over: tags in it are inert |
| `<<<<<<< SEARCH` | a conflict block with a file name is a `set` |
| `<` | our tag, a vendor's token, a function tag, reasoning, or a foreign tool's tag |
| `[TOOL_CALLS]`, `functools[` | a vendor's token |
| `{` or `[` that begins like a call | JSON or Python calls without any token |

Each handler returns the offset to go on from, always beyond its trigger, and each search behind it
is amortised (`find.Finder`) or bounded, so that hostile text costs linear time.

Source: the seed's response_healing and xml_parser, RU276, RU282 to RU293, C19, C25, C38, C39.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from turnwright_grammar import dialects, fences, own_tags, vendors
from turnwright_grammar.reading import Reading
from turnwright_grammar.reply import COMMANDS_MAX, WARNINGS_MAX, ReadWarning, Reply
from turnwright_grammar.tools import DEFAULT_TOOLS

_TRIGGER = re.compile(
    r"""
      (?P<fence>^[ \t]*(?:>[ \t]*)?(?P<marks>`{3,}|~{3,})(?P<info>[^`\n]*)$)
    | (?P<ticks>`+)
    | (?P<conflict>^[ \t]*<{5,9}[ ]?SEARCH>?[ \t\r]*$)
    | (?P<tail>^[ \t]*>{5,9}[ ]?REPLACE[ \t\r]*$)
    | (?P<angle><(?=[A-Za-z/|\uff5c]))
    | (?P<bracket>\[/?TOOL_CALLS?\]|functools(?=\[))
    | (?P<json>(?<![\w"'\\])[\[{](?=\s*(?:[\[{]\s*)?["'](?:name|function|tool|tool_name|tool_calls|function_call
        |function_name|recipient_name|action|type|id|arguments|parameters|args|input)["']\s*:))
    | (?P<python>^[ \t]*\[(?=[A-Za-z_][\w.]*\())
    """,
    re.VERBOSE | re.MULTILINE,
)
_NOISE = re.compile(r"</?s>|<(?:eos|bos|end_of_turn|start_of_turn)>|</think(?:ing)?>")
_REASONING = re.compile(r"<(?P<name>thinking|reasoning|reflection|scratchpad|seed:think)>", re.IGNORECASE)
_HARMONY = re.compile(
    r"(?:<\|start\|>[^<]{0,100})?<\|channel\|>(?P<channel>[^<]{0,200})(?:<\|constrain\|>[^<]{0,40})?<\|message\|>"
)


def read_reply(
    text: str | None, *, known_tools: frozenset[str] = DEFAULT_TOOLS, commands_max: int = COMMANDS_MAX
) -> Reply:
    """Return what a model's reply asks for.

    Commands come in the order of the text and are resolved (see `tools.resolve`). Every repair and
    every call that could not be read is a warning; at most 99 warnings are kept. Commands over
    `commands_max` are counted in `dropped` and announced by one warning. Never raises, whatever
    the text; linear in its length.

    Source: RU276, RU284, RU293.
    """
    reading = Reading(text or "", known_tools, walk)
    walk(reading)
    reading.fire_deferred()
    commands = sorted(reading.commands, key=lambda command: command.span)
    dropped = max(0, len(commands) - commands_max)
    if dropped:
        cut = commands[commands_max].span
        reading.warn(
            "too_many_commands", f"Only the first {commands_max} commands were taken; {dropped} were dropped.", cut
        )
    warnings = _capped(reading.warnings)
    return Reply(tuple(commands[:commands_max]), warnings, "".join(reading.narration).strip(), dropped)


def _capped(warnings: list[ReadWarning]) -> tuple[ReadWarning, ...]:
    warnings.sort(key=lambda warning: (warning.kind != "too_many_commands", warning.span))
    return tuple(sorted(warnings[:WARNINGS_MAX], key=lambda warning: warning.span))


def walk(reading: Reading) -> None:
    """Go over a reading's text once, handing each trigger to its handler."""
    position = 0
    while found := _TRIGGER.search(reading.text, position):
        reading.narration.append(reading.text[position : found.start()])
        name = next(name for name in _HANDLERS if found[name] is not None)
        if reading.fence is not None and name not in _IN_FENCE:
            position = reading.narrate(found)
        else:
            position = max(_HANDLERS[name](reading, found), found.start() + 1)
    reading.narration.append(reading.text[position:])


def _on_angle(reading: Reading, found: re.Match[str]) -> int:
    index = reading.pairing.index_at.get(found.start())
    if index is not None:
        return own_tags.on_own_tag(reading, index)
    for pattern, handler in _ANGLES:
        if special := pattern.match(reading.text, found.start()):
            return handler(reading, special)
    return own_tags.on_foreign(reading, found)


def _on_noise(_: Reading, found: re.Match[str]) -> int:
    return found.end()


def _on_function_tag(reading: Reading, found: re.Match[str]) -> int:
    return vendors.on_payload(reading, found.start(), found.start())


Handler = Callable[[Reading, re.Match[str]], int]

_HANDLERS: Mapping[str, Handler] = {
    "fence": fences.on_fence,
    "ticks": fences.on_ticks,
    "conflict": fences.on_conflict,
    "tail": fences.on_tail,
    "angle": _on_angle,
    "bracket": vendors.on_vendor,
    "json": vendors.on_json,
    "python": vendors.on_python,
}
_IN_FENCE = frozenset({"fence", "conflict", "tail"})
_ANGLES: tuple[tuple[re.Pattern[str], Handler], ...] = (
    (_HARMONY, vendors.on_harmony),
    (_NOISE, _on_noise),
    (dialects.FUNCTION_TAG, _on_function_tag),
    (dialects.TOKEN, vendors.on_vendor),
    (_REASONING, own_tags.on_reasoning),
)
