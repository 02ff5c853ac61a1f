"""Blocks: entries as they appear in packets, rendered, escaped and counted once, when the row arrives.

A visible data entry appears twice, condensed in `<summary>` and whole in `<visible>`; every other entry once, whole or
condensed. `a_tokens`, the `tokens` of its tag, is what demoting it frees and promoting it costs: for data the whole
second block, for the others the difference. The summary block of a data entry does not depend on its visibility, so
promoting and demoting do not change `<summary>`. Plans and events have a single form.
Source: RU066, RU185, RU186, RU206, RU207; decisions C15, C24; architecture 12.5.

Fixed content of packets, whole and never demoted: plans, their deltas, and events.

They have a single form, whatever their visibility, because a summarized plan is useless. `s_tokens` is their whole
cost, and demoting them frees nothing. Events are folded instead (see domain.folding). Source: rows RP05-RP07, RH01,
RH03, RH05; decisions C34, C46, C47; ADR 28.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import Entry, State, Visibility

from turnwright_assembler.domain.envelope import attributes_text, element, fenced, framed, tag_name, wrapped
from turnwright_assembler.domain.projection import OWN_VIEWS, Views
from turnwright_core.events import COMPRESSION_SOURCE, Subkind
from turnwright_core.json_text import JsonObject
from turnwright_core.limits import SHOWN_BYTES_MAX, SHOWN_BYTES_MIN, SUMMARY_CHARS_MAX, TARGET_CHARS_MAX
from turnwright_core.plans.plan import PlanPart, part_of
from turnwright_core.schemes import BUILT_IN, Scheme, Schemes
from turnwright_core.text import tokens_of

FIXED_SCHEMES: Final = frozenset({"plan", "event"})

_JSON_ESCAPES: Final = str.maketrans(
    {chr(code): f"\\u{code:04x}" for code in (*b"<>&", 0x7F, 0x85, 0x2028, 0x2029, *range(0xD800, 0xE000))}
)
"""What can pretend to be markup, end a line, or not be said in UTF-8. In JSON it stands in strings only."""


class EventPart(Struct, frozen=True):
    """What an event is, apart from its message."""

    subkind: str
    source: str
    payload: object


def plan_part(entry: Entry) -> PlanPart | None:
    """A plan with its latest version, or a delta; None for a version that was replaced."""
    part = part_of(entry.path)
    if part.sequence:
        return part
    return None if part.version else replace(part, version=entry.attributes["version"])


def event_of(entry: Entry) -> EventPart | None:
    """The event in an entry; None if the delta that it announces says the same.

    Reports of evictions from a transcript are for clients only.
    """
    event = entry.attributes.get("event")
    if not isinstance(event, dict) or event.get("subkind") == Subkind.PLAN_DELTA.value:
        return None
    if event.get("source") == COMPRESSION_SOURCE and event.get("subkind") == Subkind.SUMMARIZATION_MARKER.value:
        return None
    return EventPart(str(event.get("subkind") or ""), str(event.get("source") or ""), event.get("payload"))


def plan_text(entry: Entry, part: PlanPart) -> str:
    """`<plan>`, or `<plan-update>` for a delta."""
    shown: dict[str, str | int] = {"plan_id": part.plan_id, "version": part.version}
    if part.sequence:
        return element("plan-update", shown | {"sequence": part.sequence}, fenced(entry.path, entry.body))
    return element("plan", shown | {"mode": entry.attributes["mode"]}, fenced(entry.path, entry.body))


def event_text(entry: Entry, event: EventPart) -> str:
    """`<event>`: the payload as one line of JSON without markup, then the message."""
    return event_element(entry.path, event, entry.body)


def event_element(path: str, event: EventPart, body: str) -> str:
    """The same for an event without its entry."""
    payload = f"<payload>{_json_line(event.payload)}</payload>"
    lines = (payload, fenced(path, body)) if body else (payload,)
    return element("event", {"subkind": event.subkind, "source": event.source}, "\n".join(lines))


def _json_line(payload: object) -> str:
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).translate(_JSON_ESCAPES)


SHOWN_CATEGORIES: Final = frozenset({"data", "logging", "unknown", "prompt"})
"""Categories that a section shows; entries of others cost nothing."""

_END: Final = "\n"
"""A block is a piece of its section, and includes the newline that ends it."""

SHOWN_SHARE_MAX: Final = 4
"""Maximum ratio of a body's length to that of a text that refers to it: the store reads both."""

Attributes = dict[str, str | int]


class Figures(Struct, frozen=True):
    """Tokens of a packet, and tokens left below the ceiling."""

    usage: int
    free: int


class PromptParts(Struct, frozen=True):
    """The parts of `<prompt>` of the active prompt; bodies are between their sentinels."""

    loop: int
    mode: str
    attributes: JsonObject
    figures: Figures | None
    whole: str
    condensed: str


class Block(Struct, frozen=True):
    """One entry of a packet, each text with its final newline. `whole` is kept only while it is visible."""

    path: str
    scheme: str
    category: str
    visibility: Visibility
    turn: int
    position: int
    whole: str
    condensed: str
    s_tokens: int
    a_tokens: int
    prompt: PromptParts | None = None
    body_chars: int = 0
    """Code points of the entry's body."""
    plan: PlanPart | None = None
    event: EventPart | None = None
    in_log: bool = False
    """Whether it is in the log whichever loop runs; earlier prompts are, too."""

    @property
    def is_visible(self) -> bool:
        return self.visibility is Visibility.VISIBLE

    @property
    def text(self) -> str:
        """The text of an entry that occurs once."""
        return self.whole or self.condensed

    @property
    def sections(self) -> tuple[tuple[str, str], ...]:
        """The tags of the sections that show it, each with its text. The active prompt has a section of its own."""
        if self.category == "data":
            summary = ("summary", self.condensed)
            return (summary, ("visible", self.whole)) if self.whole else (summary,)
        if self.in_log or self.prompt:
            return (("log", self.text),)
        return (("plans" if self.plan else "unknowns", self.text),)

    @property
    def showing(self) -> tuple[str, ...]:
        """Those of its texts that mostly consist of the body, so that the store can keep a reference."""
        if not SHOWN_BYTES_MIN <= self.body_chars <= SHOWN_BYTES_MAX:
            return ()
        texts = (self.whole, self.condensed)
        return tuple(text for text in texts if text and self.body_chars <= SHOWN_SHARE_MAX * len(text))


def stands_in_packet(entry: Entry, scheme: Scheme) -> bool:
    """Whether any section shows the entry, by the rules of its scheme. Source: RU086, RU187, RU200."""
    return (scheme.category in SHOWN_CATEGORIES or entry.scheme in FIXED_SCHEMES) and is_seen(entry, scheme)


def is_seen(entry: Entry, scheme: Scheme) -> bool:
    """Whether a model may see the entry at all."""
    return (
        scheme.model_visible
        and entry.visibility in (Visibility.VISIBLE, Visibility.SUMMARIZED)
        and entry.state is not State.PROPOSED
    )


def make_block(entry: Entry, divisor: int, schemes: Schemes = BUILT_IN, views: Views = OWN_VIEWS) -> Block | None:
    """The block of an entry, or None if no packet shows it. Raises the errors of a plugin's projection."""
    scheme = schemes.rules(entry.scheme)
    if not stands_in_packet(entry, scheme):
        return None
    if entry.scheme in FIXED_SCHEMES:
        return _fixed_block(entry, scheme.category, divisor)
    attributes = entry.attributes
    category = scheme.category
    tag, shown = _tag(entry, category, attributes, views.reserved), attributes_text(_shown(entry, attributes))
    seen, left = views.bodies(entry, schemes)
    short = framed(entry, left, category)
    body = short if seen == left else framed(entry, seen, category)
    if category == "data":
        freed = _second_block_tokens(tag, shown, body, divisor)
    else:
        freed = 0 if body is short else _difference_tokens(tag, shown, body, short, divisor)
    shown = f'{shown} tokens="{freed}"'
    condensed = wrapped(tag, shown, short) + _END
    whole = ""
    if entry.visibility is Visibility.VISIBLE:
        whole = condensed if body is short else wrapped(tag, shown, body) + _END
    return Block(
        path=entry.path,
        scheme=entry.scheme,
        category=category,
        visibility=entry.visibility,
        turn=entry.turn,
        position=entry.position,
        whole=whole,
        condensed=condensed,
        s_tokens=tokens_of(len(condensed), divisor),
        a_tokens=freed,
        prompt=_prompt_parts(entry, attributes, body if whole else "", short) if category == "prompt" else None,
        body_chars=len(entry.body),
        in_log=category == "logging",
    )


def _fixed_block(entry: Entry, category: str, divisor: int) -> Block | None:
    """The block of a plan, a delta or an event: always visible."""
    plan = plan_part(entry) if entry.scheme == "plan" else None
    event = event_of(entry) if entry.scheme == "event" else None
    if plan is None and event is None:
        return None
    text = (plan_text(entry, plan) if plan else event_text(entry, event) if event else "") + _END
    tokens = tokens_of(len(text), divisor)
    return Block(
        path=entry.path,
        scheme=entry.scheme,
        category=category,
        visibility=Visibility.VISIBLE,
        turn=entry.turn,
        position=entry.position,
        whole=text,
        condensed="",
        s_tokens=tokens,
        a_tokens=0,
        body_chars=len(entry.body),
        plan=plan,
        event=event,
        in_log=event is not None or (plan is not None and plan.sequence > 0),
    )


def summarized(block: Block) -> Block:
    """The block after demotion; only its visibility changes. Source: RU064."""
    prompt = replace(block.prompt, whole="") if block.prompt else None
    return replace(block, visibility=Visibility.SUMMARIZED, whole="", prompt=prompt)


def active_prompt(blocks: Iterable[Block], loop: int) -> Block | None:
    """The latest prompt of a loop; None if it is archived. Source: RU187, RU195."""
    own = (block for block in blocks if block.prompt and block.prompt.loop == loop)
    return max(own, key=lambda block: block.position, default=None)


def _second_block_tokens(tag: str, shown: str, body: str, divisor: int) -> int:
    """Tokens of the tag around the whole body, including its own `tokens` figure and newline."""
    chars = len(wrapped(tag, f'{shown} tokens=""', body)) + len(_END)
    tokens = 0
    # The figure counts itself. A larger figure never has fewer digits, so this finds the smallest solution.
    while (needed := tokens_of(chars + len(str(tokens)), divisor)) > tokens:
        tokens = needed
    return tokens


def _difference_tokens(tag: str, shown: str, body: str, short: str, divisor: int) -> int:
    """Token difference between the tags around the whole and the condensed body; both have the same figure."""
    chars = len(wrapped(tag, shown, body)) - len(wrapped(tag, shown, short))
    # A plugin may show a summarized entry longer than its body: then demotion frees nothing.
    return tokens_of(max(0, chars), divisor)


def _tag(entry: Entry, category: str, attributes: JsonObject, reserved: frozenset[str]) -> str:
    if category == "data":
        return tag_name(entry.scheme or "file", reserved)
    if category == "logging":
        return tag_name(str(attributes.get("tool") or entry.scheme), reserved)
    return category


def _shown(entry: Entry, attributes: JsonObject) -> Attributes:
    """The attributes of the tag besides `tokens`, in this order. Source: RU063, RU203."""
    return {
        "path": entry.path,
        "target": str(attributes.get("target") or "")[:TARGET_CHARS_MAX],
        "mode": str(attributes.get("mode") or "") if entry.scheme == "prompt" else "",
        "binary": "true" if attributes.get("binary") is True else "",
        "status": entry.status,
        "outcome": entry.outcome,
        "summary": str(attributes.get("summary") or "")[:SUMMARY_CHARS_MAX],
    }


def _prompt_parts(entry: Entry, attributes: JsonObject, whole: str, condensed: str) -> PromptParts:
    usage, free, loop = (attributes.get(key) for key in ("tokenUsage", "tokensFree", "loop"))
    return PromptParts(
        loop=loop if isinstance(loop, int) else entry.loop,
        mode=str(attributes.get("mode") or ""),
        attributes=attributes,
        figures=Figures(usage, free) if isinstance(usage, int) and isinstance(free, int) else None,
        whole=whole,
        condensed=condensed,
    )
