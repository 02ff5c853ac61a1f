"""Tags in a reply: our own, reasoning, and those of tools that are not ours.

Each handler gets the reading and where its trigger stands, and returns the offset to go on from.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec.structs import replace

from turnwright_grammar.edits.markers import is_unfinished
from turnwright_grammar.find import SearchTrigger
from turnwright_grammar.native import LEFT_OVER, RISKY
from turnwright_grammar.reader import foreign
from turnwright_grammar.reader.bodies import TagEnd
from turnwright_grammar.reader.reading import Reading
from turnwright_grammar.reader.tags import Tag, begins_line, lex_tag, well_formed
from turnwright_grammar.tools import canonical, has_parameter

# Cut off inside an attribute, these may still run: half an argument does no harm to them.
_HARMLESS = frozenset({"get", "search", "update", "think", "ask_user"})
_TAG_CLOSED = SearchTrigger(re.compile(">"), ">")
_COMMENT_END = re.compile("-->")
_COMMENT_WAKE = SearchTrigger(_COMMENT_END, ">")
_VALUE_OR_NOT = re.compile(r"[<>\n]")
_VALUE_GOES_ON = re.compile(r"[^<>\n]*[\"']\s*/?>")
REASONING = re.compile(
    r"""
      <(?:thinking|thoughts?|reason|reasoning|reflection|scratchpad|seed:think)>
    | <\|(?:START_THINKING|begin_of_thought|inner_prefix)\|> | <\|channel>
    | \[THINK\] | \u25c1think\u25b7
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Other openings close with their own name.
_REASONING_ENDS = {
    "<|start_thinking|>": "<|end_thinking|>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|channel>": "<channel|>",
}
_LAST_CHARS = 120
_LAST_WORD = re.compile(r"(?<!\S)([A-Z][A-Za-z0-9_]*)\s*\Z")
_ADVICE = {
    "unclosed": "Unclosed <{name}>; its body was taken to end {where}.",
    "mismatched_close": "<{name}> was closed by another tool's tag.",
    "reopened": "<{name}/> ended itself and yet had a body; the body was taken.",
    "empty_body": "<{name}> was opened but neither filled nor closed; it was taken as <{name}/>.",
}
_WHERE = {"sibling": "where the next command begins", "end": "with the reply", "unbalanced": "at its first close"}


def on_plain(reading: Reading, found: re.Match[str]) -> int:
    """Take a call of which nothing has to be judged (see `Bodies.plain`); over the cap it is only counted."""
    name, span = found[1], found.span()
    attributes, body = ({}, "") if reading.is_full else canonical(name, well_formed(found[2]), found[3] or "")
    reading.add(name, attributes, body, span)
    reading.drop(*span)
    return span[1]


def on_own_tag(reading: Reading, opener: re.Match[str]) -> int:
    """Take the tag at `opener` as a command, or say why not. Source: RU284 to RU291, C19, C39."""
    tag = lex_tag(reading.text, opener)
    if tag.touched and reading.wait(_TAG_CLOSED):
        return tag.start
    span = (tag.start, tag.end)
    if tag.kind == "close":
        reading.warn("stray_close", f"</{tag.name}> closes nothing.", span)
        reading.drop(*span)
        return tag.end
    if not tag.plausible:
        if tag.attributes:
            reading.warn("stray_tag", f"<{tag.name}> inside a sentence was taken as text.", span)
        return tag.end
    if tag.cut and tag.name not in _HARMLESS:
        # The end of the reply came inside an argument: half a path or command may do harm.
        reading.warn("cut_call", f"<{tag.name}> was cut off inside an attribute and not run.", span)
        reading.drop(*span)
        return tag.end
    return _on_open(reading, tag)


def _on_open(reading: Reading, tag: Tag) -> int:
    ending = reading.bodies.ending(tag)
    if not ending.settled:
        reading.wait(_close_of(tag.name) if ending.how == "end" else None)
        return tag.start
    if tag.repaired and tag.name in RISKY and (end := _left_over(reading, tag)) is not None:
        return end
    if ending.how == "closed" and _is_unfinished(tag.name, reading.text[ending.body_start : ending.body_end]):
        ending = _extended(reading, tag, ending)
        if reading.waiting:
            return tag.start
    if ending.how not in ("self", "closed") and not tag.attributes and not begins_line(reading.text, tag.start):
        reading.warn("stray_tag", f"<{tag.name}> inside a sentence was taken as text.", (tag.start, tag.end))
        return tag.end
    _warn_ending(reading, tag, ending)
    _add_own(reading, tag, ending)
    reading.drop(tag.start, ending.end)
    return ending.end


def _left_over(reading: Reading, tag: Tag) -> int | None:
    """Where a tag ends whose value was taken to end before its quote (`<sh command="echo "a > b" > c"/>`), or None."""
    if _VALUE_OR_NOT.search(reading.text, tag.end) is None and reading.wait():
        return tag.start
    goes_on = _VALUE_GOES_ON.match(reading.text, tag.end)
    if goes_on is None:
        return None
    reading.warn("arguments_left_over", LEFT_OVER.format(name=tag.name), (tag.start, goes_on.end()))
    reading.drop(tag.start, goes_on.end())
    return goes_on.end()


def _is_unfinished(name: str, body: str) -> bool:
    """Whether a body stops inside its own code fence or edit marker; most bodies are told apart at a glance."""
    if "```" in body:
        return is_unfinished(name, body)
    if name != "set" or "<<" not in body:
        return False
    last = _LAST_WORD.search(body[-_LAST_CHARS:])
    return not (last and f"<<{last[1]}" in body) and is_unfinished(name, body)


def _extended(reading: Reading, tag: Tag, ending: TagEnd) -> TagEnd:
    """Look for a later close when the body stops inside its own code fence or edit marker."""
    for later in reading.bodies.later_closes(tag, ending):
        if later is None:
            reading.wait()
        elif not _is_unfinished(tag.name, reading.text[ending.body_start : later.start]):
            return replace(ending, body_end=later.start, end=later.end)
    return ending


def _warn_ending(reading: Reading, tag: Tag, ending: TagEnd) -> None:
    if ending.how in ("self", "closed") and tag.complete and not tag.repaired:
        return
    span = (tag.start, ending.end)
    if tag.repaired or not tag.complete:
        reading.warn("attribute_quotes", f"The attributes of <{tag.name}> were not ended properly; repaired.", span)
    if ending.how == "empty" and tag.complete:
        reading.warn("empty_body", _ADVICE["empty_body"].format(name=tag.name), span)
    elif ending.how in ("mismatched", "reopened"):
        kind = "mismatched_close" if ending.how == "mismatched" else "reopened"
        reading.warn(kind, _ADVICE[kind].format(name=tag.name), span)
    elif ending.how in _WHERE:
        reading.warn("unclosed", _ADVICE["unclosed"].format(name=tag.name, where=_WHERE[ending.how]), span)


def _add_own(reading: Reading, tag: Tag, ending: TagEnd) -> None:
    body = reading.text[ending.body_start : ending.body_end]
    attributes = tag.attributes
    if "path" not in attributes and tag.name not in ("think", "update") and body.lstrip().startswith("<"):
        # `<get><path>a</path></get>`: parameters as tags.
        parameters = foreign.read_parameters(body.strip())
        if parameters is not None and has_parameter(tag.name, parameters):
            attributes, body = attributes | parameters, ""
    if ending.how == "empty" and not attributes:
        return
    attributes, body = canonical(tag.name, attributes, body)
    reading.add(tag.name, attributes, body, (tag.start, ending.end))


def on_reasoning(reading: Reading, found: re.Match[str]) -> int:
    """Step over reasoning in tags: calls in it were considered, not made."""
    pattern = _reasoning_end(found[0].lower())
    closing = reading.finder.search(pattern, found.end())
    if closing is None:
        if not reading.wait(SearchTrigger(pattern, ">")):
            reading.drop(*found.span())
        return found.end()
    reading.warn_inert(found.end(), closing.start(), found[0])
    reading.drop(found.start(), closing.end())
    return closing.end()


def on_comment(reading: Reading, start: int) -> int:
    """Step over `<!-- ... -->`: what is commented out was not called. One that never ends is text."""
    closing = reading.finder.search(_COMMENT_END, start)
    if closing is None:
        reading.wait(_COMMENT_WAKE)
        return start + 1
    reading.warn_inert(start, closing.start(), "a comment")
    return closing.end()


def on_foreign(reading: Reading, start: int) -> int:
    """Take an unknown tool's call as unknown; other tags are text."""
    call = foreign.read_foreign(reading.finder, start, reading.tools)
    if call is None:
        return start + 1
    if not (call.settled and call.closed) and reading.wait(_TAG_CLOSED if call.settled else None):
        return start
    span = (start, call.end)
    if not call.closed:
        reading.warn("unclosed", f"Unclosed <{call.name}>.", span)
    reading.add(call.name, call.attributes, call.body, span)
    reading.drop(*span)
    return call.end


@lru_cache(maxsize=64)
def _close_of(name: str) -> SearchTrigger:
    return SearchTrigger(re.compile(rf"</\s?{re.escape(name)}[^<>]*>", re.IGNORECASE), ">")


@lru_cache(maxsize=16)
def _reasoning_end(opening: str) -> re.Pattern[str]:
    closing = _REASONING_ENDS.get(opening) or f"{opening[0]}/{opening[1:]}"
    return re.compile(re.escape(closing), re.IGNORECASE)
