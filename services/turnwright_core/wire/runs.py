"""Protobuf conversion of projects, models, runs, loops and turns."""

from __future__ import annotations

from typing import Final

from turnwright.types.v1 import budget_pb2, loop_pb2, model_pb2, project_pb2, run_pb2, settings_pb2, turn_pb2, usage_pb2

from turnwright_core.checks import invalid
from turnwright_core.models import Capabilities, Effort, Model, Price, Reasoning, ReportedWindow
from turnwright_core.runs import (
    AnswerFormat,
    Budget,
    ForkOrigin,
    KnowledgeHit,
    Loop,
    LoopSettings,
    LoopTally,
    Project,
    Run,
    RunSettings,
    Spend,
    Turn,
    TurnRequest,
    TurnResult,
    Usage,
)
from turnwright_core.tool_settings import ClientTool, ToolRules
from turnwright_core.wire.codec import FieldCodec, codec, each
from turnwright_core.wire.entries import cursor_from_pb, cursor_to_pb
from turnwright_core.wire.prompt_edits import EDITS

_can_to_pb, _can_from_pb = codec(Capabilities, model_pb2.Capabilities)
# What says nothing is left out: the models of most are the same bytes then as before.
_CAPABILITIES: FieldCodec = (lambda can: None if can == Capabilities() else _can_to_pb(can), _can_from_pb)
_window = codec(ReportedWindow, model_pb2.ReportedWindow)
_price = codec(Price, model_pb2.Price)
model_to_pb, model_from_pb = codec(
    Model, model_pb2.Model, capabilities=_CAPABILITIES, reported_window=_window, price=_price
)
usage_to_pb, usage_from_pb = codec(Usage, usage_pb2.Usage)
budget_to_pb, budget_from_pb = _budget = codec(Budget, budget_pb2.Budget)
spend_to_pb, spend_from_pb = codec(Spend, budget_pb2.Spend)
_EFFORTS: Final[dict[int, Effort]] = {
    settings_pb2.REASONING_EFFORT_OFF: "off",
    settings_pb2.REASONING_EFFORT_LOW: "low",
    settings_pb2.REASONING_EFFORT_MEDIUM: "medium",
    settings_pb2.REASONING_EFFORT_HIGH: "high",
}
_EFFORT_NUMBERS: Final = {word: number for number, word in _EFFORTS.items()}


def reasoning_to_pb(reasoning: Reasoning) -> settings_pb2.Reasoning:
    if reasoning.effort is None:
        return settings_pb2.Reasoning(tokens=reasoning.tokens)
    return settings_pb2.Reasoning(effort=_EFFORT_NUMBERS[reasoning.effort])  # type: ignore[arg-type]


def reasoning_from_pb(reasoning: settings_pb2.Reasoning) -> Reasoning | None:
    """Decode; None if it is not set."""
    if reasoning.tokens:
        return Reasoning(tokens=reasoning.tokens)
    if reasoning.effort and reasoning.effort not in _EFFORTS:
        raise invalid("reasoning.effort", f"{reasoning.effort} is not a valid level of reasoning.")
    return Reasoning(_EFFORTS[reasoning.effort]) if reasoning.effort else None


REASONING: Final = (reasoning_to_pb, reasoning_from_pb)
project_to_pb, _ = codec(Project, project_pb2.Project)
ANSWER_FORMAT: Final = codec(AnswerFormat, settings_pb2.ResponseFormat)
loop_settings_to_pb, loop_settings_from_pb = codec(
    LoopSettings,
    settings_pb2.LoopSettings,
    only=tuple(name for name in LoopSettings.__struct_fields__ if name != "model_of_run"),
    budget=_budget,
    reasoning=REASONING,
    response_format=ANSWER_FORMAT,
    edits=EDITS,
    client_tools=each(*codec(ClientTool, settings_pb2.ClientTool)),
)
tool_rules_to_pb, tool_rules_from_pb = _rules = codec(ToolRules, settings_pb2.ToolRules)
run_settings_to_pb, run_settings_from_pb = codec(
    RunSettings, settings_pb2.RunSettings, budget=_budget, tool_rules=_rules
)
loop_to_pb, loop_from_pb = codec(
    Loop, loop_pb2.Loop, settings=(loop_settings_to_pb, loop_settings_from_pb), usage=(usage_to_pb, usage_from_pb)
)
run_to_pb, run_from_pb = codec(
    Run,
    run_pb2.Run,
    settings=(run_settings_to_pb, run_settings_from_pb),
    loop=(loop_to_pb, loop_from_pb),
    forked_from=codec(ForkOrigin, run_pb2.ForkOrigin),
)
turn_request_to_pb, turn_request_from_pb = codec(
    TurnRequest,
    turn_pb2.TurnRequest,
    reasoning=REASONING,
    response_format=ANSWER_FORMAT,
    knowledge=each(*codec(KnowledgeHit, turn_pb2.KnowledgeHit)),
)
turn_result_to_pb, turn_result_from_pb = codec(
    TurnResult,
    turn_pb2.TurnResult,
    usage=(usage_to_pb, usage_from_pb),
    cursor=(cursor_to_pb, cursor_from_pb),
    edits=EDITS,
    reported_window=_window,
    tally=codec(LoopTally, turn_pb2.LoopTally),
)
turn_to_pb, turn_from_pb = codec(
    Turn,
    turn_pb2.Turn,
    request=(turn_request_to_pb, turn_request_from_pb),
    result=(turn_result_to_pb, turn_result_from_pb),
)
