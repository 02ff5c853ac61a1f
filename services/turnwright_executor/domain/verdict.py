"""The verdict over a turn: whether its loop goes on, and if not, how it ended.

A chain of filters, in the order of their priorities, lower first. Each is given the facts of the turn and the
vote so far, and answers with the vote from then on; so a later filter can overrule an earlier one, and others
join by passing a longer chain. The first vote is: go on. Source: rows RU010, RU012, RU140, RU141, RU249, RU250,
RU277-RU281; decisions C3, C12, C20, C27, C29.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from turnwright_core.entries import State
from turnwright_core.runs import ABORTED, COMPLETED, REJECTED, RUNNING, TERMINAL_UPDATES, TurnResult
from turnwright_executor.domain.cycles import cycle_period
from turnwright_executor.domain.strikes import is_strike, streak_after

REFUTED_OUTCOME: Final = "conflict:409"
"""Outcome of an update whose claim of being done was refuted (RU140)."""


class Rejection(Enum):
    """Whether somebody rejected a proposal of the turn, and said why (C20)."""

    NONE = 0
    SILENT = 1
    COMMENTED = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings of the verdict; the period is in turns. Source: RU298, RU300, RU301."""

    max_strikes: int = 3
    min_cycles: int = 3
    max_cycle_period: int = 4
    max_loop_turns: int = 99


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """How one command ended. `update_status` is that of an update, 102 where it was none of the known ones.

    `rejected` says that somebody declined it: its record is failed, but the model did nothing wrong.
    """

    path: str
    tool: str
    state: State
    body: str = ""
    update_status: int = RUNNING
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class ReplyFacts:
    """What the reply was: whether it held any command, its text outside of commands, what could not be read."""

    any_command: bool
    narration: str = ""
    parse_failures: int = 0


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """All that the verdict looks at.

    `records` stand in the order of the reply. `errors` counts error entries that belong to no command.
    `recent` are the results of the loop's earlier turns, oldest first; `loop_turn` counts the loop's turns from 1.
    """

    records: tuple[RecordFacts, ...]
    reply: ReplyFacts
    errors: int
    fingerprint: str
    recent: tuple[TurnResult, ...]
    loop_turn: int
    rejection: Rejection = Rejection.NONE
    limits: Limits = Limits()

    @property
    def update(self) -> RecordFacts | None:
        """The last update: the one that counts (RU141)."""
        return next((record for record in reversed(self.records) if record.tool == "update"), None)

    @property
    def failures(self) -> int:
        """How many commands failed, without those that somebody declined."""
        return sum(record.state is State.FAILED and not record.rejected for record in self.records)

    @property
    def is_refuted(self) -> bool:
        """Whether the last update says that all is done while something failed or was declined."""
        update = self.update
        if update is None or update.update_status != COMPLETED:
            return False
        return any(record.state is State.FAILED for record in self.records if record is not update)

    @property
    def is_empty(self) -> bool:
        """Whether the reply held nothing at all."""
        return not self.reply.any_command and not self.reply.narration.strip()

    @property
    def period(self) -> int:
        """The period in turns of the cycle that this turn is in, 0 for none."""
        fingerprints = [*(result.fingerprint for result in self.recent), self.fingerprint]
        return cycle_period(fingerprints, self.limits.min_cycles, self.limits.max_cycle_period)

    @property
    def strikes(self) -> int:
        """The streak of strikes, this turn included."""
        struck = is_strike(
            errors=self.errors + self.reply.parse_failures,
            failures=self.failures,
            is_empty=self.is_empty,
            is_cycle=self.period > 0,
        )
        return streak_after(self.recent[-1].strikes if self.recent else 0, struck=struck)


@dataclass(frozen=True, slots=True)
class Vote:
    """Whether the loop goes on; if not, the status it ends with. `reason` is one word, for people and telemetry."""

    continue_: bool
    status: int
    reason: str = ""


GO_ON: Final = Vote(True, RUNNING)


@dataclass(frozen=True, slots=True)
class Filter:
    """One member of the chain; `vote` is given the facts and the vote so far."""

    priority: int
    name: str
    vote: Callable[[TurnFacts, Vote], Vote]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the loop.

    `summary` is the text that the loop ends with, `strikes` the streak from now on. `update_override` is the path
    of an update that has to become failed with REFUTED_OUTCOME.
    """

    continue_: bool
    status: int
    reason: str
    summary: str
    strikes: int
    update_override: str | None = None


def _plain_text(facts: TurnFacts, vote: Vote) -> Vote:
    """A reply without commands is an answer, unless a command in it could not be read (C3)."""
    reply = facts.reply
    if reply.any_command or facts.is_empty or reply.parse_failures:
        return vote
    return Vote(False, COMPLETED, "text")


def _update(facts: TurnFacts, vote: Vote) -> Vote:
    """The last update ends the loop when it is terminal (RU141, RU277)."""
    update = facts.update
    if update is None or update.update_status not in TERMINAL_UPDATES:
        return vote
    return Vote(False, update.update_status, "update")


def _refuted(facts: TurnFacts, vote: Vote) -> Vote:
    """Who says 200 after a failure is wrong (RU140, RU278). 204 and 422 do not claim success and stand."""
    return Vote(True, RUNNING, "refuted") if facts.is_refuted else vote


def _commented(facts: TurnFacts, vote: Vote) -> Vote:
    """A rejection with a comment gives the model another turn to read it (C20)."""
    return Vote(True, RUNNING, "commented") if facts.rejection is Rejection.COMMENTED else vote


def _strikes(facts: TurnFacts, vote: Vote) -> Vote:
    """Too many strikes in a row end a loop that would go on (RU012, RU281)."""
    if not vote.continue_ or facts.strikes < facts.limits.max_strikes:
        return vote
    return Vote(False, ABORTED, "cycles" if facts.period else "strikes")


def _loop_turns(facts: TurnFacts, vote: Vote) -> Vote:
    """No loop is longer than its limit (RU281)."""
    if not vote.continue_ or facts.loop_turn < facts.limits.max_loop_turns:
        return vote
    return Vote(False, ABORTED, "loop_turns")


def _rejected(facts: TurnFacts, vote: Vote) -> Vote:
    """A rejection without a comment ends the loop, whatever else the turn said (RU249, C20)."""
    return Vote(False, ABORTED, REJECTED) if facts.rejection is Rejection.SILENT else vote


FILTERS: Final = (
    Filter(10, "plain_text", _plain_text),
    Filter(20, "update", _update),
    Filter(30, "refuted", _refuted),
    Filter(40, "commented", _commented),
    Filter(50, "strikes", _strikes),
    Filter(60, "loop_turns", _loop_turns),
    Filter(70, "rejected", _rejected),
)
"""The rules of the specification."""


def judge(facts: TurnFacts, filters: Iterable[Filter] = FILTERS) -> Verdict:
    """The verdict over a turn; filters of equal priority vote in the given order."""
    vote = GO_ON
    for one in sorted(filters, key=lambda each: each.priority):
        vote = one.vote(facts, vote)
    update = facts.update
    return Verdict(
        continue_=vote.continue_,
        status=vote.status,
        reason=vote.reason,
        summary=update.body if update else facts.reply.narration.strip() if not facts.reply.any_command else "",
        strikes=facts.strikes,
        update_override=update.path if update and facts.is_refuted else None,
    )
