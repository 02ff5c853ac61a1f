"""The record of a command, from RECORD to its outcome, as a value.

A record only changes through the methods below, each of which returns another record. Its `stage`:

    recorded    durable; nothing has happened
    proposed    its effect waits for a decision
    asked       somebody is asked what became of its effect: a person, or the client that executes it
    answered    somebody has answered what became of an interrupted effect
    accepted    its effect was accepted, and has not been carried out
    dispatched  its effect may have begun
    settled     it has ended: resolved, failed or cancelled

Source: architecture 11; rows RU128-RU138, RU149, RU249-RU255; decisions C10, C12, C20, C26.
"""

from __future__ import annotations

import secrets
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace
from turnwright_values.store import EntryWrite
from turnwright_values.types import (
    AgentsEffect,
    ClientCall,
    ClientToolEffect,
    DecidingRule,
    DecisionKind,
    Permission,
    QuestionEffect,
    Rule,
    State,
    WrittenFile,
)

from turnwright_core.decisions import Decision
from turnwright_core.json_text import JsonMapping
from turnwright_core.rules import deciding
from turnwright_executor.domain.effects import Effect, EffectClass
from turnwright_grammar.reply import Command


class Stage(StrEnum):
    """How far a command came."""

    RECORDED = "recorded"
    PROPOSED = "proposed"
    ASKED = "asked"
    ANSWERED = "answered"
    ACCEPTED = "accepted"
    DISPATCHED = "dispatched"
    SETTLED = "settled"


class Done(Struct, frozen=True):
    """A settled command: the content of its record, and the entries that change with it.

    `attributes` are merged into those of the record. `outcome` is `word:code`, empty if resolved. `files` are the
    project files that the command changed.
    """

    body: str
    state: State = State.RESOLVED
    outcome: str = ""
    attributes: JsonMapping = field(default_factory=dict)
    writes: tuple[EntryWrite, ...] = ()
    files: tuple[WrittenFile, ...] = ()


def failed(outcome: str, body: str, **attributes: object) -> Done:
    """A command that failed: `failed("not_found:404", "src/x.py is not in the project.")`."""
    return Done(body, State.FAILED, outcome, attributes)


class CommandRecord(Struct, frozen=True):
    """One command. `attributes` are what tools say of it; the other fields are the runtime's."""

    path: str
    tool: str
    target: str
    command: Command
    ordinal: int | None = None
    """Its place in the reply, from 0; None for a client's command."""
    effect_class: EffectClass = EffectClass.OUTSIDE
    """What it means that it was interrupted; a record that does not say so is not tried again."""
    key: str = ""
    """Of an idempotent command: the same at every attempt. Of one with an outside effect: a new one with each mark."""
    call_id: str = ""
    """Our id of the native call that it came by, `call_{turn}_{ordinal}`; empty: it came by a tag."""
    vendor_call_id: str = ""
    state: State = State.RECORDED
    outcome: str = ""
    body: str = ""
    effect: Effect | None = None
    """What it wants to do, until that is over."""
    permission: Permission = Permission.UNSPECIFIED
    """Who allows its effect, from where that is known to its end."""
    is_dispatched: bool = False
    interrupted: Effect | None = None
    """An effect of which nobody knows whether it happened, while somebody is asked."""
    decision: Decision | None = None
    call: ClientCall | None = None
    attributes: JsonMapping = field(default_factory=dict)
    files: tuple[WrittenFile, ...] = ()
    """The project files that it changed, once it has ended."""
    rule: DecidingRule | None = None
    """The approval rule that decided about its effect, or had somebody asked."""

    @property
    def stage(self) -> Stage:
        if self.state.is_settled:
            return Stage.SETTLED
        if self.state is State.PROPOSED:
            is_asked = self.interrupted is not None or isinstance(self.effect, ClientToolEffect)
            return Stage.ASKED if is_asked else Stage.PROPOSED
        if self.is_dispatched:
            return Stage.DISPATCHED
        if self.effect is None or self.decision is None or self.decision.kind is not DecisionKind.ACCEPTED:
            return Stage.RECORDED
        return Stage.ACCEPTED if self.interrupted is None else Stage.ANSWERED

    def person(self, asked_by: str) -> str:
        """The person behind its effect: who called it, or decided on it, else whom its loop is for."""
        if self.call is not None:
            return self.call.principal
        return asked_by if self.decision is None else self.decision.principal

    @property
    def rejection(self) -> Decision | None:
        """The decision that prevented the effect. An expired proposal has one too."""
        is_rejected = self.decision is not None and self.decision.kind is not DecisionKind.ACCEPTED
        return self.decision if is_rejected else None

    def prepared(self, effect: Effect, body: str, attributes: JsonMapping) -> CommandRecord:
        return replace(self, effect=effect, body=body, attributes={**self.attributes, **attributes})

    def permitted(self, permission: Permission) -> CommandRecord:
        return replace(self, permission=permission)

    def ruled(self, rule: Rule | None) -> CommandRecord:
        return replace(self, rule=deciding(rule) if rule else None)

    def proposed(self) -> CommandRecord:
        return replace(self, state=State.PROPOSED)

    def dispatched(self) -> CommandRecord:
        """Its effect may have begun."""
        key = secrets.token_hex(8) if self.effect_class is EffectClass.OUTSIDE else self.key
        permission = Permission.DECISION if self.decision else self.permission
        return replace(self, is_dispatched=True, key=key, permission=permission)

    def not_dispatched(self) -> CommandRecord:
        """Its effect has not begun after all."""
        return replace(self, is_dispatched=False, permission=Permission.UNSPECIFIED)

    def waiting(self, effect: Effect, body: str) -> CommandRecord:
        """What it has started goes on without it, and it waits for that."""
        return replace(
            self,
            state=State.PROPOSED,
            body=body,
            effect=effect,
            permission=Permission.UNSPECIFIED,
            is_dispatched=False,
            decision=None,
        )

    @property
    def waits_for_agents(self) -> bool:
        """Whether it waits for agents: nobody decides on it."""
        return self.state is State.PROPOSED and isinstance(self.effect, AgentsEffect)

    def asked(self, question: QuestionEffect) -> CommandRecord:
        """Ask somebody what became of the effect; it is kept as `interrupted` until they answer."""
        return replace(
            self,
            state=State.PROPOSED,
            body=question.question,
            effect=question,
            interrupted=self.effect,
            permission=Permission.UNSPECIFIED,
            is_dispatched=False,
            decision=None,
        )

    def retried(self) -> CommandRecord:
        """The answer was to carry out the effect again."""
        return replace(self, effect=self.interrupted, interrupted=None)

    @property
    def comment(self) -> str:
        """The comment of a decision, or the answer to a question."""
        return self.decision.comment if self.decision else ""

    def settled(self, done: Done) -> CommandRecord:
        """The command has ended. Its effect is dropped: it has been carried out, or never will be."""
        return replace(
            self,
            state=done.state,
            outcome=done.outcome,
            body=done.body,
            effect=None,
            permission=Permission.UNSPECIFIED,
            is_dispatched=False,
            interrupted=None,
            call=replace(self.call, owner="") if self.call else None,
            attributes={**self.attributes, **done.attributes},
            files=done.files,
        )
