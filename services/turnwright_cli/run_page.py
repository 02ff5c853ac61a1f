"""`runs export --html`: a run as the page that shows it, in one file."""

from __future__ import annotations

import contextlib
from typing import Final

from google.protobuf.message import Message
from turnwright.executor.v1 import explain_pb2
from turnwright.plans.v1 import plan_service_pb2
from turnwright.rules.v1 import rule_service_pb2
from turnwright.turns.v1 import turn_service_pb2
from turnwright.types.v1 import plan_pb2, rule_pb2

from turnwright_client import Client
from turnwright_core.errors import TurnwrightError
from turnwright_ui.recording import page_with

PACKETS_MAX: Final = 100
"""Maximum number of the latest turns whose packets are explained in the file."""

PIECES_MAX: Final = 300
"""Maximum number of pieces of each of them."""

VERSIONS_MAX: Final = 50
"""Maximum number of the latest versions of each plan."""


async def page_of(client: Client, project: str, run: str) -> str:
    """The page of a run as it is now. Raises TurnwrightError."""
    watched: list[bytes] = []
    plans: dict[str, plan_pb2.Plan] = {}
    async with contextlib.aclosing(client.watch(project, run, plans="operations")) as events:
        async for event in events:
            watched.append(event.SerializeToString())
            plans |= {plan.plan_id: plan for plan in event.snapshot.plans}
            if event.snapshot.last:
                break
    turns = [turn async for turn in client.list_turns(project, run)]
    rules = rule_pb2.RuleSet(rules=await client.list_rules(project, run))
    versions: dict[str, Message] = {
        f"{plan.plan_id}/{version}": plan_service_pb2.GetPlanResponse(
            plan=await client.get_plan(project, run, plan_id=plan.plan_id, version=version)
        )
        for plan in plans.values()
        for version in range(max(1, plan.version - VERSIONS_MAX), plan.version)
    }
    packets: dict[str, Message] = {}
    for turn in turns[:PACKETS_MAX]:
        # A packet that is not kept any more is all that is left out.
        with contextlib.suppress(TurnwrightError):
            found = await client.explain_packet(project, run, turn.number, PIECES_MAX)
            packets[str(turn.number)] = explain_pb2.ExplainPacketResponse(explanation=found)
    answers: dict[str, dict[str, Message]] = {
        "ListTurns": {"": turn_service_pb2.ListTurnsResponse(turns=turns)},
        "ListRules": {"": rule_service_pb2.ListRulesResponse(set=rules)},
        "GetPlan": versions,
        "ExplainPacket": packets,
    }
    written = {
        method: {key: [one.SerializeToString()] for key, one in found.items()} for method, found in answers.items()
    }
    return page_with(project, run, {"WatchRun": {"": watched}, **written})
