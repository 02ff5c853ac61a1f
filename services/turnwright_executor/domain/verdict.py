"""The verdict on a turn: whether its loop goes on, and if not, how it ended.

The chain `turn.verdict` decides. Its filters are voters, in the order of their priorities, lower first: each gets the
vote so far and the facts of the turn, and returns the new vote; so a later one can overrule an earlier one. The first
vote is to go on. This module has the facts and the runtime's own rules, which are registered like the voters of plugins
(`hooks.registry`). Source: rows RU010, RU012, RU140, RU141, RU249, RU250, RU277-RU281; C3, C12, C20, C27, C29, C67.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cached_property
from typing import Final

from msgspec import Struct, field
from turnwright_values.types import LoopTally, Mode, State, TurnResult, Usage

from turnwright_core.limits import LOOP_SUMMARY_BYTES_MAX
from turnwright_core.runs import (
    ABORTED,
    COMPLETED,
    EXPIRED,
    LOOP_ENDED,
    REJECTED,
    RUNNING,
    TERMINAL_UPDATES,
    UNPROCESSABLE,
)
from turnwright_core.text import cut_bytes
from turnwright_executor.domain.addresses import TurnAddress
from turnwright_executor.domain.tally import tally_before

# Cycle detection: turns that repeat the same fingerprints.
#
# Source: rows RU156, RU280, RU301.


def cycle_period(fingerprints: list[str], cycles_min: int, max_period: int) -> int:
    """The shortest period in which the last turns repeat, 0 if they do not.

    `fingerprints` are those of a loop's turns, oldest first, including this turn. A period counts if the last `period *
    cycles_min` turns are `cycles_min` equal blocks.
    """
    for period in range(1, max_period + 1):
        tail = fingerprints[-period * cycles_min :]
        if len(tail) == period * cycles_min and tail == tail[:period] * cycles_min:
            return period
    return 0


REFUTED_OUTCOME: Final = "conflict:409"
"""Outcome of an update that claims success although something failed (RU140)."""

ANSWER_INVALID: Final = "answer_invalid:422"
"""Outcome of an answer that does not match the response format."""

REASON_CHARS_MAX: Final = 200
"""Longest reason of a vote, in characters."""


class Rejection(Enum):
    """Whether a proposal of the turn was rejected, with or without a comment (C20), or expired."""

    NONE = 0
    SILENT = 1
    COMMENTED = 2
    EXPIRED = 3


class Limits(Struct, frozen=True):
    """Settings of the verdict; the period is in turns. Source: RU298, RU300, RU301."""

    strikes_max: int = 3
    cycles_min: int = 3
    cycle_period_max: int = 4
    loop_turns_max: int = 99


class RecordFacts(Struct, frozen=True):
    """How one command ended. `update_status` is that of an update, 102 if it is unknown.

    `rejected`: somebody rejected or stopped it, or it expired; the model did nothing wrong.
    """

    path: str
    tool: str
    state: State
    body: str = ""
    update_status: int = RUNNING
    rejected: bool = False
    is_unknown: bool = False
    """Whether no tool has its name."""
    is_foreign: bool = False
    """Whether it failed because of the encoding of a file, which the model could not know: no strike."""


class ReplyFacts(Struct, frozen=True):
    """The reply: whether it has commands, its text outside commands, and parse errors."""

    any_command: bool
    narration: str = ""
    parse_failures: int = 0


class TurnFacts(Struct, frozen=True, dict=True):
    """All that the verdict looks at.

    `records` stand in the order of the reply. `errors` counts error entries that belong to no command.
    `recent` are the results of the loop's earlier turns, oldest first; `loop_turn` counts the loop's turns from 1.
    `exhausted` names the budget that this turn used up, with what was reached; empty while none is. `usage` is what
    the turn's model call consumed.
    """

    records: tuple[RecordFacts, ...]
    reply: ReplyFacts
    errors: int
    fingerprint: str
    recent: tuple[TurnResult, ...]
    loop_turn: int
    rejection: Rejection = Rejection.NONE
    limits: Limits = Limits()
    exhausted: str = ""
    usage: Usage = field(default_factory=Usage)
    at: TurnAddress = field(default_factory=TurnAddress)
    is_answer_refused: bool = False
    """Whether the turn has an answer that does not match the response format."""

    is_transcript: bool = False
    """Whether the model reads each failure as the result of its call: then it is no strike (C42)."""

    mode: Mode = Mode.UNSPECIFIED
    tally: LoopTally = LoopTally()
    """What the loop has done, this turn included."""

    @cached_property
    def update(self) -> RecordFacts | None:
        """The last update, which counts (RU141)."""
        return next((record for record in reversed(self.records) if record.tool == "update"), None)

    @property
    def failures(self) -> int:
        """Number of failed commands, without rejected ones."""
        return len([record for record in self.records if record.state is State.FAILED and not record.rejected])

    @cached_property
    def struck(self) -> int:
        """Number of commands that count as strikes: failed ones, in transcripts only those of unknown tools (C42)."""
        if self.is_transcript:
            return sum(record.is_unknown for record in self.records)
        return self.failures - sum(record.is_foreign for record in self.records)

    @cached_property
    def is_refuted(self) -> bool:
        """Whether the last update claims success although something failed, was rejected or was not run."""
        update = self.update
        if update is None or update.update_status != COMPLETED:
            return False
        has_failed = any(record.state is State.FAILED for record in self.records if record is not update)
        return has_failed or self.has_newly_ignored

    @cached_property
    def has_newly_ignored(self) -> bool:
        """Whether commands were ignored, also by the limit, for the first time in a loop that acts (C67)."""
        is_first = not tally_before(self.recent).ignored_commands
        return self.mode is Mode.ACT and is_first and self.tally.ignored_commands > 0

    @property
    def is_denied(self) -> bool:
        """Whether something was rejected or failed that the turn claims to have done."""
        return self.rejection is not Rejection.NONE or self.is_refuted

    @property
    def is_empty(self) -> bool:
        return not self.reply.any_command and not self.reply.narration.strip()

    @cached_property
    def period(self) -> int:
        """Period of the cycle that this turn is in, in turns; 0: none."""
        limits = self.limits
        latest = self.recent[-limits.cycles_min * limits.cycle_period_max :]
        fingerprints = [*[result.fingerprint for result in latest], self.fingerprint]
        return cycle_period(fingerprints, limits.cycles_min, limits.cycle_period_max)

    @cached_property
    def strikes(self) -> int:
        """Turns in a row with an error, a failed command, an empty reply or a cycle, up to this one (RU011, RU152)."""
        is_strike = self.errors or self.reply.parse_failures or self.struck or self.is_empty or self.period
        return (self.recent[-1].strikes if self.recent else 0) + 1 if is_strike else 0


class Vote(Struct, frozen=True):
    """Whether the loop goes on; if not, the status it ends with.

    `reason` is one word for people and telemetry, such as `strikes`, or a word and a sentence, such as `budget_turns:
    ...`.
    """

    continue_: bool
    status: int
    reason: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for an impossible vote: a loop goes on with 102 and ends with another status."""
        allowed = frozenset({RUNNING}) if self.continue_ else LOOP_ENDED
        if type(self.status) is not int or self.status not in allowed:
            raise ValueError(f"a vote with continue_={self.continue_} has a status of {sorted(allowed)}")
        if len(self.reason) > REASON_CHARS_MAX or not self.reason.isprintable():
            raise ValueError(f"the reason of a vote is one line of at most {REASON_CHARS_MAX} characters")


GO_ON: Final = Vote(True, RUNNING)

Voter = Callable[[Vote, TurnFacts], Vote]


class VerdictOverride(Struct, frozen=True):
    """A plugin's voter that decided a turn, and the vote before it."""

    plugin: str
    voter: str
    before: Vote


class Verdict(Struct, frozen=True):
    """The result for the loop.

    `summary` is the text that the loop ends with, `strikes` the streak from now on. `update_override` is the path of an
    update that must fail with REFUTED_OUTCOME. `overruling` says which plugin decided, if any.
    """

    continue_: bool
    status: int
    reason: str
    summary: str
    strikes: int
    update_override: str | None = None
    override: VerdictOverride | None = None

    @property
    def vote(self) -> Vote:
        return Vote(self.continue_, self.status, self.reason)


def plain_text(vote: Vote, facts: TurnFacts) -> Vote:
    """A reply without commands is an answer, unless it has a command that could not be parsed (C3).

    If something failed in the previous turn, the reason says so: it is unknown whether the work was done after all. If
    it has commands that were ignored, the model is told so once, and has another turn (C67).
    """
    reply = facts.reply
    if reply.any_command or facts.is_empty or reply.parse_failures:
        return vote
    if facts.has_newly_ignored:
        return Vote(True, RUNNING, "ignored")
    has_failed = bool(facts.recent and facts.recent[-1].strikes)
    return Vote(False, COMPLETED, "text_after_failure" if has_failed else "text")


def update(vote: Vote, facts: TurnFacts) -> Vote:
    """The last update ends the loop if it is terminal (RU141, RU277)."""
    last = facts.update
    if last is None or last.update_status not in TERMINAL_UPDATES:
        return vote
    return Vote(False, last.update_status, "update")


def refuted(vote: Vote, facts: TurnFacts) -> Vote:
    """An update of 200 after a failure is wrong (RU140, RU278). The others do not claim success and are accepted."""
    return Vote(True, RUNNING, "refuted") if facts.is_refuted else vote


def commented(vote: Vote, facts: TurnFacts) -> Vote:
    """A rejection with a comment gives the model another turn to read it (C20)."""
    return Vote(True, RUNNING, "commented") if facts.rejection is Rejection.COMMENTED else vote


def answer(vote: Vote, facts: TurnFacts) -> Vote:
    """An answer that does not match the format gives the model one more turn; a second one ends the loop."""
    if not facts.is_answer_refused:
        return vote
    is_second = bool(facts.recent) and facts.recent[-1].reason == "answer"
    return Vote(False, UNPROCESSABLE, "answer") if is_second else Vote(True, RUNNING, "answer")


def undone(vote: Vote, facts: TurnFacts) -> Vote:
    """Success that the record of an acting loop contradicts: a change failed for good, or nothing was run (C67)."""
    if vote.status != COMPLETED or facts.mode is not Mode.ACT:
        return vote
    tally = facts.tally
    if not tally.commands and (tally.unknown_commands or tally.ignored_commands):
        ignored = f"{tally.ignored_commands} in code fences or quotations, or too many for a reply"
        return _undone("nothing_run", f"no command was run: {tally.unknown_commands} unknown or unreadable, {ignored}")
    if not tally.failed_paths:
        return vote
    first, *more = tally.failed_paths
    others = f" and of {len(more)} more" if more else ""
    text = f"the change of {first or 'an unnamed file'}{others} failed, and no later command made it"
    return _undone("change_failed", text)


def _undone(word: str, text: str) -> Vote:
    reason = f"{word}: {text}"
    is_sayable = len(reason) <= REASON_CHARS_MAX and reason.isprintable()
    return Vote(False, UNPROCESSABLE, reason if is_sayable else word)


def strikes(vote: Vote, facts: TurnFacts) -> Vote:
    """Too many strikes in a row end a loop that would go on (RU012, RU281)."""
    if not vote.continue_ or facts.strikes < facts.limits.strikes_max:
        return vote
    return Vote(False, ABORTED, "cycles" if facts.period else "strikes")


def loop_turns(vote: Vote, facts: TurnFacts) -> Vote:
    """No loop is longer than its limit (RU281)."""
    if not vote.continue_ or facts.loop_turn < facts.limits.loop_turns_max:
        return vote
    return Vote(False, ABORTED, "loop_turns")


def budget(vote: Vote, facts: TurnFacts) -> Vote:
    """A loop that would go on ends at its run's budget; finished work stays finished."""
    return Vote(False, ABORTED, facts.exhausted) if vote.continue_ and facts.exhausted else vote


def rejected(vote: Vote, facts: TurnFacts) -> Vote:
    """A rejection without a comment ends the loop, whatever else the turn says (RU249, C20)."""
    return Vote(False, ABORTED, REJECTED) if facts.rejection is Rejection.SILENT else vote


def expired(vote: Vote, facts: TurnFacts) -> Vote:
    """An expired proposal ends the loop like a rejected one, but with its own reason."""
    return Vote(False, ABORTED, EXPIRED) if facts.rejection is Rejection.EXPIRED else vote


RULES: Final[tuple[tuple[int, Voter], ...]] = (
    (10, plain_text),
    (20, update),
    (30, refuted),
    (40, commented),
    (45, answer),
    (47, undone),
    (50, strikes),
    (60, loop_turns),
    (65, budget),
    (70, rejected),
    (75, expired),
)
"""The rules of the specification with their priorities."""


def verdict_of(facts: TurnFacts, vote: Vote) -> Verdict:
    """The verdict that follows from the last vote of the chain."""
    last, narration = facts.update, "" if facts.reply.any_command else facts.reply.narration.strip()
    return Verdict(
        continue_=vote.continue_,
        status=vote.status,
        reason=vote.reason,
        # What was rejected or failed has not been done, whatever the model says.
        summary="" if facts.is_denied else cut_bytes(last.body if last else narration, LOOP_SUMMARY_BYTES_MAX),
        strikes=facts.strikes,
        # Even if a voter ends the loop with 200, the claim stays refuted.
        update_override=last.path if last and facts.is_refuted else None,
    )
