"""Protobuf conversion of projects, models, runs, loops and turns."""

from __future__ import annotations

from typing import Final

from turnwright.store.v1 import agents_pb2, lease_pb2, ledger_pb2
from turnwright.types.v1 import (
    agent_pb2,
    budget_pb2,
    loop_pb2,
    model_pb2,
    project_pb2,
    run_pb2,
    session_command_pb2,
    settings_pb2,
    turn_pb2,
    usage_pb2,
)
from turnwright_values.store import (
    ClaimRunResponse,
    GetLeaseResponse,
    RenewLeasesResponse,
    StartAgentRequest,
    StartAgentResponse,
    TitleCall,
    WaitAgentsRequest,
    WaitAgentsResponse,
)
from turnwright_values.types import (
    Agent,
    Capabilities,
    FileConstraint,
    FileConstraintKind,
    Loop,
    LoopSettings,
    Model,
    Project,
    QueuedCommand,
    Run,
    RunSettings,
    Spend,
    Turn,
    TurnResult,
    Usage,
)

from turnwright_core.checks import invalid
from turnwright_core.models import Effort, Reasoning
from turnwright_core.wire.codec import codec, known, written
from turnwright_core.wire.prompt_edits import EDITS

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


written(Reasoning, reasoning_to_pb, reasoning_from_pb)
_can_to_pb, _can_from_pb = codec(Capabilities, model_pb2.Capabilities)
# What says nothing is left out: the models of most are the same bytes then as before.
_CAPABILITIES: Final = (lambda can: None if can == Capabilities() else _can_to_pb(can), _can_from_pb)
model_to_pb, model_from_pb = codec(Model, model_pb2.Model, capabilities=_CAPABILITIES)
usage_to_pb, usage_from_pb = codec(Usage, usage_pb2.Usage)
spend_to_pb = codec(Spend, budget_pb2.Spend)[0]
project_to_pb = codec(Project, project_pb2.Project)[0]
loop_settings_from_pb = codec(LoopSettings, settings_pb2.LoopSettings, edits=EDITS)[1]
run_settings_from_pb = codec(RunSettings, settings_pb2.RunSettings)[1]
loop_to_pb, loop_from_pb = codec(Loop, loop_pb2.Loop)
run_to_pb, run_from_pb = codec(Run, run_pb2.Run)
turn_result_to_pb, turn_result_from_pb = codec(TurnResult, turn_pb2.TurnResult, edits=EDITS)
turn_to_pb, turn_from_pb = codec(Turn, turn_pb2.Turn)


agent_to_pb, agent_from_pb = codec(Agent, agent_pb2.Agent)
start_agent_to_pb, start_agent_from_pb = codec(StartAgentRequest, agents_pb2.StartAgentRequest)
started_to_pb, started_from_pb = codec(StartAgentResponse, agents_pb2.StartAgentResponse)
wait_agents_to_pb, wait_agents_from_pb = codec(WaitAgentsRequest, agents_pb2.WaitAgentsRequest)
waited_to_pb, waited_from_pb = codec(WaitAgentsResponse, agents_pb2.WaitAgentsResponse)


queued_command_to_pb, queued_command_from_pb = codec(QueuedCommand, session_command_pb2.QueuedCommand)


constraint_to_pb, constraint_from_pb = codec(
    FileConstraint,
    project_pb2.FileConstraint,
    kind=(int, lambda number: known(FileConstraintKind, number or FileConstraintKind.ADD, "kind")),
)
claim_to_pb, claim_from_pb = codec(
    ClaimRunResponse,
    lease_pb2.ClaimRunResponse,
    files=(
        lambda files: ledger_pb2.AdoptFilesResponse(paths=files.keys(), hashes=files.values(), last=True),
        lambda message: dict(zip(message.paths, message.hashes, strict=True)),
    ),
)
renewal_from_pb = codec(RenewLeasesResponse, lease_pb2.RenewLeasesResponse)[1]
lease_to_pb, lease_from_pb = codec(GetLeaseResponse, lease_pb2.GetLeaseResponse)
title_call_to_pb, title_call_from_pb = codec(TitleCall, ledger_pb2.TitleCall)
