"""Reports of what was condensed or left out so that a turn fits, by which it can be explained and undone.

Of a transcript it is an event for clients, never for a model (RL04), with the evicted messages by stage. It says
whether that broke the prefix: later turns avoid breaking it again. Of a packet it is the error entry of the step.
Source: rows RL04, RL07, RL08.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace
from turnwright_values.assembler import UnfitPiece
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Entry, State, Tier, Visibility

from turnwright_assembler.domain.effects import BUDGET_OUTCOME, SUMMARIZED_PATHS, writer_for
from turnwright_assembler.domain.eviction import RESULTS, Evicted
from turnwright_assembler.domain.ladder import STEPS, Rung
from turnwright_core.chat.timeline import turn_of
from turnwright_core.events import COMPRESSION_SOURCE, RunEvent, Subkind, event_write
from turnwright_core.json_text import JsonObject
from turnwright_core.text import free_path, scheme_of
from turnwright_core.value_methods import to_attributes_json

SUMMARY: Final = "summary"
"""The stage of messages that a summary replaces."""

_SLUG: Final = "compression"


class Compression(Struct, frozen=True):
    """The paths that were condensed or left out in a turn, by stage."""

    turn: int
    stages: Mapping[str, Sequence[str]] = field(default_factory=dict)
    breaks_prefix: bool = False
    of_packet: bool = False
    """Whether a packet did not fit, and its stage is a step of the ladder."""


def report_write(evicted: Evicted, turn: int, loop: int, before: int, after: int, ceiling: int) -> EntryWrite:
    """The report of a turn; `before` and `after` are the tokens of its transcript."""
    count = len(evicted.stage_of)
    payload: JsonObject = {
        "strength": evicted.strength.name.lower(),
        "breaks_prefix": evicted.breaks_prefix,
        "tokens_before": before,
        "tokens": after,
        "ceiling": ceiling,
        "stages": {stage: len(paths) for stage, paths in evicted.stages.items()},
        **evicted.stages,
    }
    figures = f"{before} tokens became {after}, {ceiling} are allowed"
    sentence = f"{count} messages were evicted from the transcript of turn {turn}: {figures}."
    event = RunEvent(Subkind.SUMMARIZATION_MARKER, COMPRESSION_SOURCE, payload, sentence, _SLUG)
    return replace(event_write(turn, event), turn=turn, loop=loop)


def compression_in(entry: Entry) -> Compression | None:
    """The report that an event or an error entry is; None: it is another one."""
    if entry.scheme == "log":
        return _demotion_in(entry)
    event = entry.attributes.get("event")
    if not isinstance(event, dict) or event.get("source") != COMPRESSION_SOURCE:
        return None
    payload = event.get("payload")
    fields = payload if isinstance(payload, dict) else {}
    stages = fields.get("stages")
    names = stages if isinstance(stages, dict) else {}
    paths = {name: _paths(fields.get(name)) for name in names}
    broken_in = fields.get("broken_in")
    turn = broken_in if isinstance(broken_in, int) else turn_of(entry)
    return Compression(turn, paths, fields.get("breaks_prefix") is True)


def _demotion_in(entry: Entry) -> Compression | None:
    known = entry.attributes if entry.outcome == BUDGET_OUTCOME else {}
    step = known.get("step")
    if SUMMARIZED_PATHS not in known or not isinstance(step, int) or step not in STEPS:
        return None
    return Compression(turn_of(entry), {STEPS[Rung(step)]: _paths(known[SUMMARIZED_PATHS])}, of_packet=True)


def _paths(listed: object) -> list[str]:
    """Plugins can write any JSON there."""
    return [path for path in listed if isinstance(path, str)] if isinstance(listed, list) else []


def restorable(reports: Iterable[Compression]) -> list[str]:
    """What packets summarized last, of what transcripts could show whole; `reports` are in the order of turns."""
    of_packet = {path: report.of_packet for report in reports for paths in report.stages.values() for path in paths}
    return [path for path, is_restorable in of_packet.items() if is_restorable]


def summary_writes(paths: Sequence[str], condensed: Sequence[str], turn: int, loop: int) -> tuple[EntryWrite, ...]:
    """The writes with which a summary replaces messages: the next turn's prefix is another one."""
    payload: JsonObject = {
        "breaks_prefix": True,
        "broken_in": turn + 1,
        "stages": {SUMMARY: len(paths), RESULTS: len(condensed)},
    }
    payload |= {SUMMARY: list(paths), RESULTS: list(condensed)}
    sentence = f"{len(paths)} messages were replaced by the summary of turn {turn}."
    event = RunEvent(Subkind.SUMMARIZATION_MARKER, COMPRESSION_SOURCE, payload, sentence, _SLUG)
    report = replace(event_write(turn, event), turn=turn, loop=loop)
    shown = dict.fromkeys(paths, Visibility.ARCHIVED) | dict.fromkeys(condensed, Visibility.SUMMARIZED)
    return (*visibility_writes(shown), report)


def visibility_writes(shown: Mapping[str, Visibility]) -> list[EntryWrite]:
    """The writes that show entries so, by path."""
    # Prompts and replies are written by different tiers.
    return [
        EntryWrite(path, SetEntry(visibility=how), writer_for(scheme_of(path) or "")) for path, how in shown.items()
    ]


def overflow_write(
    unfit: Sequence[UnfitPiece], turn: int, loop: int, tokens: int, ceiling: int, taken: Mapping[str, object]
) -> EntryWrite:
    """The error of a turn whose transcript does not fit after any eviction."""
    excess = f"{tokens} tokens, {tokens - ceiling} over the ceiling of {ceiling}"
    first = f"The transcript of turn {turn} has {excess}, and does not fit whatever is left out. What has to stay:"
    change = SetEntry(
        body="\n".join([first, *(f"* {one.path}: {one.tokens} tokens" for one in unfit)]),
        attributes_json=to_attributes_json({"tool": "error", "target": "budget", "step": 4}),
        visibility=Visibility.VISIBLE,
        state=State.FAILED,
        outcome=BUDGET_OUTCOME,
    )
    path = free_path(f"log://turn_{turn}/error/budget_overflow", taken)
    return EntryWrite(path, change, Tier.SYSTEM, turn=turn, loop=loop)
