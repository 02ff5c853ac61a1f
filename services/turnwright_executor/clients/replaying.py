"""Replaying verdicts of stored turns: what voters would decide, without changing a run.

All facts of a verdict are stored: the records of the turn and how they ended, the record of the model call with the
reply, the results of the loop's earlier turns. So a voter can be tested on past turns. Each turn is judged with its
real history: what a loop would have done after another verdict is unknown. Source: rows RU148.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace
from turnwright_values.types import Assembly, Entry, RequestKind, State, Turn, TurnResult

from turnwright_core.tools import TOOL_ORDER
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress, TurnAddress
from turnwright_executor.domain.budgets import WORD as BUDGET_EXHAUSTED
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.verdict import REFUTED_OUTCOME, Limits, TurnFacts
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.points import TURN_VERDICT
from turnwright_executor.hooks.registry import HookSubscription, Registry, load_plugins
from turnwright_executor.turn.judging import facts_of, judge, limits_of
from turnwright_executor.turn.model_call import model_call_from_entry
from turnwright_executor.turn.recording import ANSWER
from turnwright_executor.wire.command_records import is_command, record_from_entry
from turnwright_kit.plugins import HOOKS, UNVERSIONED, Plugin, import_object, register

BUDGET_TURN: Final = "error/budget_turn"
"""Path of the error of a turn whose results did not fit, below the turn's records."""

_UPDATE: Final = "update"


class StoredVerdict(Struct, frozen=True):
    """The verdict of a turn, and the facts it was based on."""

    facts: TurnFacts
    status: int
    reason: str


class ReplayedVerdict(Struct, frozen=True):
    """A stored verdict, and the one that the chain gives now."""

    stored: StoredVerdict
    status: int
    reason: str

    @property
    def differs(self) -> bool:
        return (self.stored.status, self.stored.reason) != (self.status, self.reason)


class StoredTurns(Struct):
    """The verdicts of a run's turns, in order, and the number of those that cannot be replayed: records are missing.

    Mutable: filled turn by turn.
    """

    verdicts: list[StoredVerdict] = field(default_factory=list)
    incomplete: int = 0


def stored_turns(address: RunAddress, turns: Iterable[Turn], entries: Iterable[Entry], limits: Limits) -> StoredTurns:
    """The verdicts of a run. `entries` is the run's timeline.

    Turns that ended otherwise (an abort, an error, a packet too large, a summary) had no verdict and are left out, but
    count as turns of their loop.
    """
    by_turn: dict[str, list[Entry]] = {}
    for entry in entries:
        # By its path: the turn of an entry is that of its latest write.
        by_turn.setdefault(_turn_part(entry.path), []).append(entry)
    found = StoredTurns()
    earlier: dict[int, list[TurnResult]] = {}
    for turn in sorted(turns, key=lambda each: each.number):
        result = turn.result
        if result is None:
            continue
        recent = earlier.setdefault(turn.loop, [])
        replies = by_turn.get(f"assistant://{turn.number}", ())
        if replies and not _ended_from_outside(result) and turn.request.kind is not RequestKind.COMPACTION:
            written = by_turn.get(f"log://turn_{turn.number}", ())
            facts = _facts(address, turn, result, written, replies[0], recent, limits)
            if facts is None:
                found.incomplete += 1
            else:
                found.verdicts.append(StoredVerdict(facts, result.status, result.reason))
        recent.append(result)
    return found


def _turn_part(path: str) -> str:
    """`log://turn_3` of `log://turn_3/get/a.txt`, `assistant://3` of itself."""
    scheme, _, rest = path.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _ended_from_outside(result: TurnResult) -> bool:
    return bool(result.error) or result.finish == "aborted"


def _facts(
    address: RunAddress,
    turn: Turn,
    result: TurnResult,
    entries: Sequence[Entry],
    reply: Entry,
    recent: Sequence[TurnResult],
    limits: Limits,
) -> TurnFacts | None:
    """The facts as of the verdict; None if records are missing, because a model may remove them."""
    # Imported when verdicts are replayed, which few executors ever do.
    from turnwright_grammar.reader.parser import read_reply  # noqa: PLC0415

    note = model_call_from_entry(reply)
    records = [_as_judged(record_from_entry(entry)) for entry in entries if is_command(entry)]
    if len(records) != note.commands:
        return None
    records.sort(key=lambda record: record.ordinal or 0)
    tools = frozenset(TOOL_ORDER) | frozenset(turn.request.tools)
    narration = read_reply(reply.body, known_tools=tools, is_cut=note.is_cut).narration.strip()
    # The spend is not stored in the turn, only that it was too much.
    exhausted = result.reason if result.reason.startswith(BUDGET_EXHAUSTED) else ""
    errors = [entry.path.removeprefix(f"log://turn_{turn.number}/") for entry in entries]
    return facts_of(
        TurnAddress(address.project, address.run, turn.loop, turn.number),
        records,
        note,
        narration,
        tuple(recent),
        len(recent) + 1,
        limits,
        exhausted,
        is_demoted=any(path.startswith(BUDGET_TURN) for path in errors),
        is_answer_refused=any(path.startswith(f"error/{ANSWER}_") for path in errors),
        is_transcript=turn.request.assembly is Assembly.TRANSCRIPT,
        tools=tools,
        mode=turn.request.mode,
        tally=result.tally,
    )


def _as_judged(record: CommandRecord) -> CommandRecord:
    """The record as the verdict saw it: an update that it refuted was resolved before."""
    if record.tool == _UPDATE and record.outcome == REFUTED_OUTCOME:
        return replace(record, state=State.RESOLVED, outcome="")
    return record


async def replay(hooks: Hooks, stored: Iterable[StoredVerdict]) -> list[ReplayedVerdict]:
    replayed = []
    for one in stored:
        verdict = await judge(hooks, one.facts)
        replayed.append(ReplayedVerdict(one, verdict.status, verdict.reason))
    return replayed


class Replay:
    """Runs judged again by an executor's chain with these settings, and by further functions."""

    def __init__(self, settings: ExecutorSettings, targets: Iterable[str]) -> None:
        """`targets`: voters and `register` functions, as `module:function`. Raises SettingsError."""
        registry = load_plugins(settings.hooks, settings.tools)
        for target in targets:
            plugin = Plugin(target, target, UNVERSIONED, partial(_register_of, target))
            register(plugin, registry, "--hook", HOOKS.setting)
        self._hooks = Hooks(registry, settings.hook_deadline_s)
        self._limits = limits_of(settings)
        self.failures: list[tuple[HookSubscription, BaseException]] = []
        """The voters that failed, and so did not vote."""
        self._hooks.failures = self.failures
        self.verdicts: list[ReplayedVerdict] = []
        self.incomplete = 0
        """Turns that were left out: records of them are missing."""

    async def add_run(self, project: str, run: str, turns: Iterable[Turn], entries: Iterable[Entry]) -> None:
        """Judge a run's turns again. `entries` is its timeline."""
        stored = stored_turns(RunAddress(project, run), turns, entries, self._limits)
        self.verdicts += await replay(self._hooks, stored.verdicts)
        self.incomplete += stored.incomplete


def _register_of(target: str) -> object:
    """The named `register` function; a function with two parameters is itself a voter."""
    function = import_object(target)
    if len(inspect.signature(function).parameters) != 2:
        return function

    def register_voter(registry: Registry) -> None:
        registry.filter(TURN_VERDICT, function)

    return register_voter
