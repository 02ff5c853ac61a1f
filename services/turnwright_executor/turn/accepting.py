"""Filters between the decision on a proposal and its effect: plugins may veto it, or change what is written.

An accepted proposal goes through the filters `proposal.accepting` and `proposal.content`, whoever accepted it: a
client, or the run itself (yolo). The result is stored with the mark that precedes the effect, and only then is the
acceptance announced; so an owner that takes over after that mark does not run the filters again. Source: rows RU013,
RU252, RU253.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import (
    AgentsEffect,
    ClientToolEffect,
    CommandEffect,
    FileEdit,
    FileEffect,
    Mode,
    QuestionEffect,
    RuleSet,
    RuleVerdict,
    Run,
)

from turnwright_core.limits import RECORD_BYTES_MAX
from turnwright_core.rules import RuleDecision, allows_network
from turnwright_core.turn_settings import Ruling, ruling_of, yolo_of
from turnwright_core.wire.command_records import intended_effect
from turnwright_executor.domain.addresses import TurnAddress
from turnwright_executor.domain.amending import AMENDED_PATCH_BYTES_MAX, amended_command, amended_edit, edited_text
from turnwright_executor.domain.command_record import CommandRecord, Done, failed
from turnwright_executor.domain.effects import CallEffect, Effect
from turnwright_executor.hooks import points
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.points import Acceptance, Content, Proposal, ProposalDecided, ProposedFile
from turnwright_executor.turn.records import record_bytes
from turnwright_executor.wire.command_records import command_record_to_pb


def may_use_network(rules: RuleSet, principal: str, mode: Mode, record: CommandRecord) -> bool:
    """Whether rules let the command of a record use the network, for somebody in a mode."""
    if not isinstance(record.effect, CommandEffect):
        return False
    return allows_network(rules.rules, intended_effect(command_record_to_pb(record), principal, mode))


# What a run accepts without asking, as its owner knows it.
#
# A grant that is made holds from the next turn on, and one that is taken away from the next effect: the store checks
# the mark of each effect that nobody has decided on. Source: decision C62; row RC02.


class Grants:
    """The grants of one claimed run. Mutable: they are read again."""

    def __init__(self, run: Run, rules: RuleSet | None, read: Callable[[], Awaitable[tuple[Run, RuleSet]]]) -> None:
        """Start from the run with its active loop, and its approval rules; `read` reads both again."""
        self._run = run
        self._rules = rules
        self._read = read
        self._withdrawn: set[str] = set()

    @property
    def is_yolo(self) -> bool:
        """Whether every proposal is accepted that no rule has asked about."""
        return yolo_of(self._run) is not None

    @property
    def rules_version(self) -> str:
        return self._rules.version if self._rules else ""

    def ruling(self, record: CommandRecord) -> Ruling:
        ruling = ruling_of(self._run, self._rules, command_record_to_pb(record))
        if record.path in self._withdrawn and ruling.verdict is RuleVerdict.ALLOW:
            # It may be the person behind the loop that has lost a right, which only the store knows.
            return Ruling(RuleDecision(RuleVerdict.ASK))
        return ruling

    def allows_network(self, record: CommandRecord) -> bool:
        """Whether rules let the command of a record use the network, whoever is behind it."""
        mode = self._run.loop.settings.mode if self._run.loop else Mode.UNSPECIFIED
        return self._rules is not None and may_use_network(self._rules, self._rules.principal, mode, record)

    def turn_begun(self, run: Run | None, rules: RuleSet | None) -> None:
        """A turn has begun; the run and its rules as they are then, None where they are not known or the same."""
        self._run = run or self._run
        self._rules = self._rules if rules is None else rules

    async def withdrawn(self, path: str) -> None:
        """Ask about the effect of a record, and read the grants again: one was taken away. Raises TurnwrightError."""
        self._withdrawn.add(path)
        self._run, self._rules = await self._read()


AMENDED_BYTES_MAX: Final = RECORD_BYTES_MAX - 1024
"""Maximum size of a record with edited content, in bytes; the mark of its effect must fit as well."""


class Proposals(Struct):
    """The proposals of one turn, and the observers to notify."""

    hooks: Hooks
    at: TurnAddress
    grants: Grants | None = None
    """What the run accepts without asking; None: a client's command."""

    def pending(self, record: CommandRecord) -> None:
        """A proposal waits, and that is stored."""
        if record.effect:
            self.hooks.emit(points.PROPOSAL_PENDING, self._proposal(record, record.effect))

    async def accept(self, record: CommandRecord) -> Effect | Done:
        """The effect after the filters, or the record settled by a veto. Never raises for an error of a plugin."""
        effect = record.effect
        if effect is None:
            raise AssertionError("only an effect is accepted")
        proposal = self._proposal(record, effect)
        accepting = await self.hooks.apply(points.PROPOSAL_ACCEPTING, Acceptance(), proposal)
        if not accepting.allow:
            return failed(accepting.outcome, accepting.body)
        return await self._amended(proposal, record, effect)

    async def _amended(self, proposal: Proposal, record: CommandRecord, effect: Effect) -> Effect | Done:
        """The effect with the replaced contents, after the filters of plugins (RU253)."""
        contents = contents_of(record)
        if isinstance(effect, CommandEffect):
            return replace(amended_command(effect, contents), producer=runner_of(record))
        if isinstance(effect, QuestionEffect):
            return replace(effect, answer=record.comment)
        if isinstance(effect, ClientToolEffect):
            is_failed = record.decision is not None and record.decision.tool_failed
            return replace(effect, result=contents.get("", ""), failed=is_failed)
        if isinstance(effect, CallEffect | AgentsEffect):
            return effect
        edits: list[FileEdit] = []
        left = AMENDED_PATCH_BYTES_MAX
        for edit in effect.edits:
            content = await self._content(proposal, edit, edited_text(effect, edit.path, contents))
            if content.is_refused:
                return failed(content.outcome, content.body)
            edits.append(amended_edit(edit, content.text, left))
            left -= len(edits[-1].patch.encode(errors="replace")) if edits[-1].amended else 0
        return FileEffect(tuple(edits))

    async def _content(self, proposal: Proposal, edit: FileEdit, edited: str | None) -> Content:
        wanted = Content(edit.content if edited is None else edited)
        proposed = ProposedFile(proposal, edit.path, edit.content, edited)
        return await self.hooks.apply(points.PROPOSAL_CONTENT, wanted, proposed)

    def accepted(self, record: CommandRecord) -> None:
        if record.effect:
            decided = ProposalDecided(self._proposal(record, record.effect), comment=record.comment)
            self.hooks.emit(points.PROPOSAL_ACCEPTED, decided)

    def rejected(self, record: CommandRecord) -> None:
        """A rejection is stored; announced again if the turn is resumed."""
        if record.effect:
            proposal = self._proposal(record, record.effect)
            decided = ProposalDecided(proposal, record.outcome, record.comment)
            self.hooks.emit(points.PROPOSAL_REJECTED, decided)

    def vetoed(self, record: CommandRecord, outcome: str) -> None:
        """A veto of this record is stored."""
        if record.effect:
            decided = ProposalDecided(self._proposal(record, record.effect), outcome)
            self.hooks.emit(points.PROPOSAL_REJECTED, decided)

    def _proposal(self, record: CommandRecord, effect: Effect) -> Proposal:
        is_yolo = self.grants is not None and self.grants.is_yolo
        return Proposal(self.at, record.path, record.tool, record.command, effect, is_yolo)


def runner_of(record: CommandRecord) -> str:
    """The client that accepted a command in order to run it; empty if the executor runs it."""
    return record.decision.principal if record.decision and record.decision.client_runs else ""


def contents_of(record: CommandRecord) -> Mapping[str, str]:
    """The contents that replace the proposed ones, by path."""
    return record.decision.contents if record.decision else {}


def amended(record: CommandRecord, effect: Effect) -> CommandRecord:
    """The record with its final effect, which now includes the replaced contents."""
    decision = record.decision
    if decision and decision.contents:
        decision = replace(decision, contents={}, edited=tuple(sorted(decision.contents)))
    return replace(record, effect=effect, decision=decision)


def record_too_large(record: CommandRecord) -> Done | None:
    """The result for a command whose edited content exceeds the limit of a record."""
    size = record_bytes(record)
    if size <= AMENDED_BYTES_MAX:
        return None
    return failed("too_large:413", f"The accepted content has {size} bytes; at most {AMENDED_BYTES_MAX} are kept.")
