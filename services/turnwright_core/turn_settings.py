"""What a turn takes of the settings of its run when it begins. Source: decision C48; docs/adr/0044."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright.types.v1.command_record_pb2 import CommandRecord
from turnwright_values.types import (
    Mode,
    Permission,
    Rule,
    RuleLevel,
    RuleSet,
    RuleVerdict,
    Run,
    RunSettings,
    TurnRequest,
)

from turnwright_core.rules import RuleDecision, decide
from turnwright_core.wire.command_records import intended_effect


def with_settings_of_run(request: TurnRequest, settings: RunSettings) -> TurnRequest:
    """The request with those settings that hold from the next turn of a run on."""
    limit, temperature = settings.context_limit, settings.temperature
    return replace(
        request,
        context_length=min(request.context_length, limit) if limit else request.context_length,
        temperature=request.temperature if temperature is None else temperature,
    )


_YOLO: Final = Rule(level=RuleLevel.RUN, verdict=RuleVerdict.ALLOW)
"""What `yolo` means: it stands before the rules of the run."""


class Ruling(Struct, frozen=True):
    """What becomes of an effect on which nobody has decided."""

    decision: RuleDecision
    permission: Permission = Permission.UNSPECIFIED
    """What allows it; unspecified: nothing."""

    @property
    def verdict(self) -> RuleVerdict:
        return self.decision.verdict


def yolo_of(run: Run) -> Permission | None:
    """The grant that accepts every effect in the active loop of a run, as it is now."""
    if run.settings.yolo:
        return Permission.RUN
    return Permission.LOOP if run.loop and run.loop.settings.yolo else None


def ruling_of(run: Run, rules: RuleSet | None, record: CommandRecord, tool: str = "") -> Ruling:
    """What becomes of the effect of a record in the active loop of a run. `tool`: where the record names none."""
    yolo = yolo_of(run)
    if not rules or not rules.rules:
        verdict = RuleVerdict.ALLOW if yolo else RuleVerdict.ASK
        return Ruling(RuleDecision(verdict), yolo or Permission.UNSPECIFIED)
    intended = intended_effect(record, rules.principal, run.loop.settings.mode if run.loop else Mode.UNSPECIFIED)
    intended = intended if intended.tool or not tool else replace(intended, tool=tool)
    own = replace(_YOLO, lifts=rules.lifts)
    decision = decide((own, *rules.rules) if yolo else rules.rules, intended)
    if decision.verdict is not RuleVerdict.ALLOW:
        return Ruling(decision)
    if decision.rule is own:
        return Ruling(RuleDecision(RuleVerdict.ALLOW), yolo or Permission.UNSPECIFIED)
    return Ruling(decision, Permission.RULE)
