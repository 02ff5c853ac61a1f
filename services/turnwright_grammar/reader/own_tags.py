"""Handlers for tags: our own, reasoning, and those of unknown tools.

Each gets the state and the offset of its trigger, and returns the offset to continue at.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from turnwright_grammar.edits.markers import is_unfinished
from turnwright_grammar.native import LEFT_OVER, RISKY
from turnwright_grammar.reader.bodies import THOUGHT_END, TagEnd
from turnwright_grammar.reader.parser_state import ParserState
from turnwright_grammar.reader.tags import Tag, begins_line, lex_open, lex_tag, well_formed
from turnwright_grammar.reply import Command
from turnwright_grammar.scanner import SearchTrigger, TextScanner
from turnwright_grammar.tools import canonicalize, takes_parameters

# Calls of unknown tools, written as tags.
#
# Some models were trained on other agents' tools and write `<read_file><path>a</path></read_file>`.
# Such a call is returned as unknown rather than ignored, so that the model gets an error. Prose and
# HTML stay text: a call is a name with an underscore around nothing but parameter tags, or any
# unknown tag with an attribute that only tools have.

# Names are shorter than the lookahead of `bodies.WHOLE_TAG`.
_PARAMETRIC = re.compile(r"<(?=\w{1,100}>)(?P<name>[a-z][a-z0-9]*(?:_[a-z0-9]+)+)>")
_BEFORE_PARAMETER = re.compile(r"\s*(?:<(?:[a-z]\w*)?)?")
_OPENING = re.compile(r"<(?P<name>[A-Za-z][\w.\-]{0,99})(?=\s)")
_PARAMETER = re.compile(r"\s*<(?P<name>[a-z]\w*)>")
_TYPICAL_ATTRIBUTES = frozenset({"path", "command", "query", "file_path"})
# A tag around one of these is a wrapper; the call inside counts.
_CALLS = frozenset({"tool_call", "tool_calls", "tool_use", "function_call", "function_calls", "function", "invoke"})
_KEEPS_BLANKS = frozenset({"content", "diff", "body", "text"})
_VALUES_TRIED_MAX = 50
_UNCLOSED_CHARS_MAX = 20_000


class UnknownCall(Struct, frozen=True):
    """The call of an unknown tool: `closed` is false if its end was not found, `settled` if it needs more lookahead."""

    name: str
    attributes: dict[str, str]
    end: int
    closed: bool = True
    body: str = ""
    settled: bool = True


def read_unknown_call(scanner: TextScanner, start: int, tools: frozenset[str]) -> UnknownCall | None:
    """The call of an unknown tool at `start`; None for text and for a tag around one of our `tools`. Never raises."""
    if found := _PARAMETRIC.match(scanner.text, start):
        return _parametric(scanner, found, tools)
    return _attribute_form(scanner, start)


def _parametric(scanner: TextScanner, opening: re.Match[str], tools: frozenset[str]) -> UnknownCall | None:
    text, name = scanner.text, opening["name"]
    if _PARAMETER.match(text, opening.end()) is None:
        before = _BEFORE_PARAMETER.match(text, opening.end())
        if scanner.final or (before and before.end() < len(text)):
            return None
        return UnknownCall(name, {}, opening.end(), settled=False)
    is_affordable = scanner.can_spend(opening.end())
    closing = _close_after(scanner, name, opening.end())
    if closing is None and not scanner.final:
        return UnknownCall(name, {}, opening.end(), closed=False)
    end = closing.start() if closing else min(len(text), opening.end() + _UNCLOSED_CHARS_MAX)
    attributes = read_parameters(text[opening.end() : end]) if is_affordable else None
    if attributes is None or not attributes.keys().isdisjoint(tools | _CALLS):
        scanner.spend(end - opening.end())
        return None
    return UnknownCall(name, attributes, closing.end() if closing else end, closing is not None)


def read_parameters(content: str) -> dict[str, str] | None:
    """Return `<a>1</a><b>2</b>` as a dictionary, or None when `content` is anything else."""
    attributes: dict[str, str] = {}
    position = 0
    content = content.rstrip()
    while position < len(content):
        opening = _PARAMETER.match(content, position)
        if opening is None:
            return None
        end = _value_end(content, opening)
        if end is None:
            return None
        attributes[opening["name"]] = _value(opening["name"], content[opening.end() : end])
        position = end + len(opening["name"]) + 3
    return attributes or None


def _value_end(content: str, opening: re.Match[str]) -> int | None:
    # A close counts only before another parameter or the end: a value may contain its own close.
    closing = f"</{opening['name']}>"
    end = content.find(closing, opening.end())
    for _ in range(_VALUES_TRIED_MAX):
        if end < 0:
            return None
        after = end + len(closing)
        if after >= len(content) or _PARAMETER.match(content, after):
            return end
        end = content.find(closing, after)
    return None


def _value(name: str, raw: str) -> str:
    return raw.removeprefix("\n") if name in _KEEPS_BLANKS else raw.strip()


def _attribute_form(scanner: TextScanner, start: int) -> UnknownCall | None:
    found = _OPENING.match(scanner.text, start)
    if found is None:
        return None
    tag = lex_open(scanner.text, start, found["name"], found.end())
    # `a<b then` is text, whatever follows.
    if tag.touched and not scanner.final and (tag.repaired or not tag.junk):
        return UnknownCall(tag.name, {}, tag.end, settled=False)
    if not tag.complete or not _TYPICAL_ATTRIBUTES & tag.attributes.keys() or tag.junk:
        return None
    if tag.kind == "self":
        return UnknownCall(tag.name, tag.attributes, tag.end)
    closing = _close_after(scanner, tag.name, tag.end)
    if closing is None:
        return UnknownCall(tag.name, tag.attributes, tag.end, closed=False)
    return UnknownCall(tag.name, tag.attributes, closing.end(), body=scanner.text[tag.end : closing.start()])


def _close_after(scanner: TextScanner, name: str, start: int) -> re.Match[str] | None:
    # Searches for many different names are not amortized, so a failed one is paid from the budget.
    closing = scanner.search(_closing(name), start) if scanner.can_spend(start) else None
    if closing is None:
        scanner.spend(_UNCLOSED_CHARS_MAX)
    return closing


@lru_cache(maxsize=256)
def _closing(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{re.escape(name)}\s*>")


# These may run although they were truncated inside an attribute: an incomplete argument does no harm.
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
    "reopened": "<{name}/> is self-closing but a body followed; the body was taken.",
    "empty_body": "<{name}> has neither a body nor a closing tag; it was taken as <{name}/>.",
}
_WHERE = {"sibling": "where the next command begins", "end": "with the reply", "unbalanced": "at its first close"}


def on_simple_call(state: ParserState, found: re.Match[str]) -> int:
    """Add a well-formed call (see `BodyFinder.simple_call`); over the cap it is only counted."""
    name, span = found[1], found.span()
    attributes, body = ({}, "") if state.is_full else canonicalize(name, well_formed(found[2]), found[3] or "")
    state.add(name, attributes, body, span)
    state.skip(*span)
    return span[1]


def on_own_tag(state: ParserState, opener: re.Match[str]) -> int:
    """Add the tag at `opener` as a command, or warn why not. Source: RU284 to RU291, C19, C39."""
    tag = lex_tag(state.text, opener)
    if tag.touched and state.needs_more(_TAG_CLOSED):
        return tag.start
    span = (tag.start, tag.end)
    if tag.kind == "close" and tag.name == "think":
        return state.end_thought(*span)
    if tag.kind == "close":
        state.warn("stray_close", f"</{tag.name}> closes nothing.", span)
        state.skip(*span)
        return tag.end
    if not tag.plausible:
        if tag.attributes:
            state.warn("stray_tag", f"<{tag.name}> inside a sentence was taken as text.", span)
        return tag.end
    if tag.cut and tag.name not in _HARMLESS:
        # An incomplete path or command may do harm.
        state.warn(
            "cut_call", f"<{tag.name}> was cut off inside an attribute and not run.", span, lost=(Command(tag.name),)
        )
        state.skip(*span)
        return tag.end
    return _on_open(state, tag)


def _on_open(state: ParserState, tag: Tag) -> int:
    ending = state.bodies.find_end(tag)
    if not ending.settled:
        state.needs_more(_close_of(tag.name) if ending.how == "end" else None)
        return tag.start
    if tag.repaired and tag.name in RISKY and (end := _check_left_over(state, tag)) is not None:
        return end
    if ending.how == "closed" and _is_unfinished(tag.name, state.text[ending.body_start : ending.body_end]):
        ending = _extended(state, tag, ending)
        if state.is_waiting:
            return tag.start
    if ending.how not in ("self", "closed") and not tag.attributes and not begins_line(state.text, tag.start):
        state.warn("stray_tag", f"<{tag.name}> inside a sentence was taken as text.", (tag.start, tag.end))
        return tag.end
    _warn_ending(state, tag, ending)
    _add_own(state, tag, ending)
    state.skip(tag.start, ending.end)
    return ending.end


def _check_left_over(state: ParserState, tag: Tag) -> int | None:
    """The end of a tag whose value seemed to end before its quote (`<sh command="echo "a > b" > c"/>`), or None."""
    if _VALUE_OR_NOT.search(state.text, tag.end) is None and state.needs_more():
        return tag.start
    rest = _VALUE_GOES_ON.match(state.text, tag.end)
    if rest is None:
        return None
    span = (tag.start, rest.end())
    state.warn("arguments_left_over", LEFT_OVER.format(name=tag.name), span, lost=(Command(tag.name),))
    state.skip(tag.start, rest.end())
    return rest.end()


def _is_unfinished(name: str, body: str) -> bool:
    """Whether a body stops inside its own code fence or edit marker; with fast checks for the common cases."""
    if "```" in body:
        return is_unfinished(name, body)
    if name != "set" or "<<" not in body:
        return False
    last = _LAST_WORD.search(body[-_LAST_CHARS:])
    return not (last and f"<<{last[1]}" in body) and is_unfinished(name, body)


def _extended(state: ParserState, tag: Tag, ending: TagEnd) -> TagEnd:
    """Use a later close if the body stops inside its own code fence or edit marker."""
    for later in state.bodies.later_closes(tag, ending):
        if later is None:
            state.needs_more()
        elif not _is_unfinished(tag.name, state.text[ending.body_start : later.start]):
            return replace(ending, body_end=later.start, end=later.end)
    return ending


def _warn_ending(state: ParserState, tag: Tag, ending: TagEnd) -> None:
    if ending.how in ("self", "closed") and tag.complete and not tag.repaired:
        return
    span = (tag.start, ending.end)
    if tag.repaired or not tag.complete:
        state.warn("attribute_quotes", f"The attributes of <{tag.name}> were not ended properly; repaired.", span)
    if ending.how == "empty" and tag.complete:
        state.warn("empty_body", _ADVICE["empty_body"].format(name=tag.name), span)
    elif ending.how in ("mismatched", "reopened"):
        kind = "mismatched_close" if ending.how == "mismatched" else "reopened"
        state.warn(kind, _ADVICE[kind].format(name=tag.name), span)
    elif ending.how in _WHERE:
        state.warn("unclosed", _ADVICE["unclosed"].format(name=tag.name, where=_WHERE[ending.how]), span)


def _add_own(state: ParserState, tag: Tag, ending: TagEnd) -> None:
    attributes, body = with_parameters(tag.name, tag.attributes, state.text[ending.body_start : ending.body_end])
    if ending.how == "empty" and not attributes:
        return
    attributes, body = canonicalize(tag.name, attributes, body)
    state.add(tag.name, attributes, body, (tag.start, ending.end))


def with_parameters(name: str, attributes: dict[str, str], body: str) -> tuple[dict[str, str], str]:
    """Attributes and body of a tool whose body may hold parameters as tags: `<get><path>a</path></get>`."""
    if name in ("think", "update") or not body.lstrip().startswith("<"):
        return attributes, body
    parameters = read_parameters(body.strip())
    if parameters is None or not takes_parameters(name, attributes, parameters):
        return attributes, body
    return attributes | parameters, ""


def on_reasoning(state: ParserState, found: re.Match[str]) -> int:
    """Skip reasoning in tags: calls in it were considered, not made."""
    pattern = _reasoning_end(found[0].lower())
    closing = state.scanner.search(pattern, found.end())
    if closing is None:
        if not state.needs_more(SearchTrigger(pattern, ">")):
            state.skip(*found.span())
        return found.end()
    state.warn_inert(found.end(), closing.start(), found[0])
    state.skip(found.start(), closing.end())
    return closing.end()


def on_thought_end(state: ParserState, start: int) -> int | None:
    """Handle the close of a thought that was never opened; None if there is none."""
    found = THOUGHT_END.match(state.text, start)
    return state.end_thought(*found.span()) if found else None


def on_comment(state: ParserState, start: int) -> int:
    """Skip a comment, `<!-- ... -->`. An unterminated one is text."""
    closing = state.scanner.search(_COMMENT_END, start)
    if closing is None:
        state.needs_more(_COMMENT_WAKE)
        return start + 1
    if (after := state.end_thought_within(start, closing.end())) is not None:
        return after
    state.warn_inert(start, closing.start(), "a comment")
    return closing.end()


def on_unknown_tool(state: ParserState, start: int) -> int:
    """Add the call of an unknown tool; other tags are text."""
    call = read_unknown_call(state.scanner, start, state.tools)
    if call is None:
        return start + 1
    if not (call.settled and call.closed) and state.needs_more(_TAG_CLOSED if call.settled else None):
        return start
    span = (start, call.end)
    if not call.closed:
        state.warn("unclosed", f"Unclosed <{call.name}>.", span)
    state.add(call.name, call.attributes, call.body, span)
    state.skip(*span)
    return call.end


@lru_cache(maxsize=64)
def _close_of(name: str) -> SearchTrigger:
    return SearchTrigger(re.compile(rf"</\s?{re.escape(name)}[^<>]*>", re.IGNORECASE), ">")


@lru_cache(maxsize=16)
def _reasoning_end(opening: str) -> re.Pattern[str]:
    closing = _REASONING_ENDS.get(opening) or f"{opening[0]}/{opening[1:]}"
    return re.compile(re.escape(closing), re.IGNORECASE)
