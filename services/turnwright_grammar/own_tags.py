"""Tags in a reply: our own, reasoning, and those of tools that are not ours.

Each handler gets the reading and its trigger and returns the offset to go on from.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType

from turnwright_grammar import foreign
from turnwright_grammar.markers import is_unfinished
from turnwright_grammar.pairing import Ending
from turnwright_grammar.reading import Reading
from turnwright_grammar.reply import Command
from turnwright_grammar.tags import Tag
from turnwright_grammar.tools import resolve

FOREIGN_TRIED_MAX = 200
# Cut off inside an attribute, these may still run: half an argument does no harm to them.
_HARMLESS = frozenset({"get", "search", "update", "think", "ask_user"})
_ADVICE = {
    "unclosed": "Unclosed <{name}>; its body was taken to end {where}.",
    "mismatched_close": "<{name}> was closed by another tool's tag.",
    "empty_body": "<{name}> was opened but neither filled nor closed; it was taken as <{name}/>.",
}


def on_own_tag(reading: Reading, index: int) -> int:
    """Take the tag at `index` as a command, or say why not. Source: RU284 to RU291, C19, C39."""
    tag = reading.pairing.tags[index]
    span = (tag.start, tag.end)
    if tag.kind == "close":
        reading.warn("stray_close", f"</{tag.name}> closes nothing.", span)
        return tag.end
    unpaired = tag.kind == "open" and index not in reading.pairing.partner
    if not tag.plausible or (unpaired and not tag.first and not tag.attributes):
        if tag.plausible or tag.attributes:
            reading.warn("stray_tag", f"<{tag.name}> inside a sentence was taken as text.", span)
        reading.narration.append(reading.text[tag.start : tag.end])
        return tag.end
    if tag.cut and tag.name not in _HARMLESS:
        # The end of the reply came inside an argument: half a path or command may do harm.
        reading.warn("cut_call", f"<{tag.name}> was cut off inside an attribute and not run.", span)
        return tag.end
    ending = reading.pairing.ending(index)
    if ending.how == "closed" and is_unfinished(tag.name, reading.text[ending.body_start : ending.body_end]):
        ending = _extended(reading, index, ending)
    _warn_ending(reading, tag, ending)
    _add_own(reading, tag, ending)
    return ending.end


def _extended(reading: Reading, index: int, ending: Ending) -> Ending:
    """Look for a later close when the body stops inside its own code fence or edit marker."""
    name = reading.pairing.tags[index].name
    for later in reading.pairing.later_closes(index):
        close = reading.pairing.tags[later]
        if not is_unfinished(name, reading.text[ending.body_start : close.start]):
            return replace(ending, body_end=close.start, end=close.end)
    return ending


def _warn_ending(reading: Reading, tag: Tag, ending: Ending) -> None:
    span = (tag.start, ending.end)
    if tag.repaired or not tag.complete:
        reading.warn("attribute_quotes", f"The attributes of <{tag.name}> were not ended properly; repaired.", span)
    match ending.how:
        case "self" | "closed":
            return
        case "empty":
            if tag.complete:
                reading.warn("empty_body", _ADVICE["empty_body"].format(name=tag.name), span)
        case "mismatched":
            reading.warn("mismatched_close", _ADVICE["mismatched_close"].format(name=tag.name), span)
        case "sibling":
            where = "where the next command begins"
            reading.warn("unclosed", _ADVICE["unclosed"].format(name=tag.name, where=where), span)
        case "end":
            where = "with the reply"
            reading.warn("unclosed", _ADVICE["unclosed"].format(name=tag.name, where=where), span)
        case "unbalanced":
            where = "at its first close"
            reading.warn("unclosed", _ADVICE["unclosed"].format(name=tag.name, where=where), span)


def _add_own(reading: Reading, tag: Tag, ending: Ending) -> None:
    body = reading.text[ending.body_start : ending.body_end]
    attributes = dict(tag.attributes)
    if "path" not in attributes and body.lstrip().startswith("<") and tag.name not in ("think", "update"):
        # `<get><path>a</path></get>`: parameters as tags.
        parameters = foreign.read_parameters(body.strip())
        if parameters is not None:
            attributes, body = attributes | parameters, ""
    if ending.how == "empty" and not attributes:
        return
    command = Command(tag.name, MappingProxyType(attributes), body, (tag.start, ending.end), known=True)
    reading.add(resolve(command))


def on_reasoning(reading: Reading, found: re.Match[str]) -> int:
    """Step over reasoning in tags: calls in it were considered, not made."""
    name = found["name"].lower()
    closing = reading.finder.search(_reasoning_end(name), found.end())
    if closing is None:
        return found.end()
    reading.warn_inert(found.end(), closing.start(), f"<{name}>")
    return closing.end()


def on_foreign(reading: Reading, found: re.Match[str]) -> int:
    """Take an unknown tool's call as unknown; other tags are text."""
    reading.foreign_tried += 1
    call = foreign.read_foreign(reading.finder, found.start()) if reading.foreign_tried <= FOREIGN_TRIED_MAX else None
    if call is None:
        return reading.narrate(found)
    span = (found.start(), call.end)
    if not call.closed:
        reading.warn("unclosed", f"Unclosed <{call.name}>.", span)
    reading.add(Command(call.name, MappingProxyType(call.attributes), call.body, span, known=False))
    return call.end


def _reasoning_end(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{re.escape(name)}>", re.IGNORECASE)
