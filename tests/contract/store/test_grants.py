"""What loops inherit and what they never do: grants, models, schedules. Rows RC02, OM32; decision C62."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import timedelta
from itertools import product

import pytest
from google.protobuf.json_format import MessageToDict
from turnwright.types.v1 import (
    budget_pb2,
    message_pb2,
    model_pb2,
    prompt_edit_pb2,
    rule_pb2,
    schedule_pb2,
    settings_pb2,
)
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier

from contract.store.harness import Run, new_run, set_
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.entries import write_to_pb

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

RESTRICTED = {
    "mode": settings_pb2.MODE_ASK,
    "model": "other",
    "no_repo": True,
    "no_interaction": True,
    "no_web": True,
    "no_proposals": True,
    "reasoning": settings_pb2.Reasoning(effort=settings_pb2.REASONING_EFFORT_HIGH),
    "assembly": settings_pb2.ASSEMBLY_TRANSCRIPT,
    "project_instructions": False,
    "summaries": True,
}
"""All that is inherited, as nobody has it by default."""

GRANTED = {"yolo": True, "client_tools": [settings_pb2.ToolDescription(name="open", description="Opens a file.")]}
"""What never is."""


async def models(client) -> None:
    for alias in ("other", "third", "old"):
        await client.call("SetModel", model=model_pb2.Model(alias=alias, vendor_model=f"scripted/{alias}"))


async def submit(run: Run, **kind):
    return await run.client.call(
        "SubmitCommand", **run.address, command_id=uuid.uuid4().hex, command=pb.SessionCommand(**kind)
    )


def said(text: str, **settings) -> pb.UserMessage:
    given = settings_pb2.LoopSettings(**settings) if settings else None
    return pb.UserMessage(parts=[message_pb2.Part(text=text)], settings=given)


async def end(run: Run, status: int = 200, reason: str = "update"):
    """Have the next loop one turn: its prompt and a reply."""
    loop = (await run.claim()).loop
    mode = settings_pb2.Mode.Name(loop.settings.mode).removeprefix("MODE_").lower()
    attributes = json.dumps({"mode": mode, "loop": loop.sequence})
    turn = (await run.begin(set_("prompt://{turn}", loop.prompt, attributes))).next.number
    await run.end(turn, set_(f"assistant://{turn}", "Done."), loop=(status, reason, ""), release=True)
    return loop


async def after(run: Run, **kind):
    """The loop that a command brings."""
    return (await submit(run, **kind)).loop


async def fork(run: Run, alias: str, turn: int = 0) -> Run:
    await run.client.call("ForkRun", **run.address, new_run=alias, turn=turn)
    return Run(run.client, run.project, alias)


async def branch(run: Run, alias: str, up_to: str = "") -> Run:
    branched = Run(run.client, run.project, alias)
    await submit(branched, branch_from_chat=pb.BranchFromChat(source=run.alias, up_to_message_id=up_to))
    return branched


async def scheduled(run: Run):
    schedule = schedule_pb2.Schedule(schedule_id="s", every=timedelta(seconds=1), prompt="Again.")
    await run.client.call("SetSchedule", **run.address, schedule=schedule)
    loop = await next_loop(run, 2)
    await run.client.call("DeleteSchedule", **run.address, schedule_id="s")
    return loop


async def next_loop(run: Run, sequence: int):
    for _ in range(600):
        found = (await run.client.call("GetRun", **run.address)).run
        if found.loop.sequence >= sequence:
            return found.loop
        await asyncio.sleep(0.05)
    raise AssertionError(f"loop {sequence} was never queued")


async def retried(run: Run):
    revision = (await run.client.call("GetRun", **run.address)).run.revision
    retry = pb.RetryFromIndex(from_index=0, expected_revision=revision, message=said("Two."))
    return await after(run, retry_from_index=retry)


AGAIN = pb.Regenerate()
DOORS = {
    "a message": lambda run: after(run, user_message=said("Two.")),
    "a priority message at rest": lambda run: after(
        run, user_message=pb.UserMessage(parts=[message_pb2.Part(text="Now.")], priority=True)
    ),
    "the prompt again": lambda run: after(run, regenerate=AGAIN),
    "another prompt in its place": lambda run: after(
        run, update_message=pb.UpdateMessage(message_id="prompt://1", content="Not one.", regenerate=True)
    ),
    "the reply once more": lambda run: after(
        run, remove_message=pb.RemoveMessage(message_id="assistant://1", regenerate=True)
    ),
    "from an index": retried,
    "a schedule": scheduled,
    "a fork's message": lambda run: _of(fork(run, f"{run.alias}f"), user_message=said("Two.")),
    "a fork's prompt again": lambda run: _of(fork(run, f"{run.alias}f"), regenerate=AGAIN),
    "a fork at a turn": lambda run: _of(fork(run, f"{run.alias}f", 1), user_message=said("Two.")),
    "a fork of a fork": lambda run: _of(_again(fork(run, f"{run.alias}f"), fork), user_message=said("Two.")),
    "a branch": lambda run: _of(branch(run, f"{run.alias}b"), user_message=said("Two.")),
    "a branch's prompt again": lambda run: _of(branch(run, f"{run.alias}b", "prompt://1"), regenerate=AGAIN),
    "a fork's schedule": lambda run: _scheduled_in(fork(run, f"{run.alias}f")),
}
"""Ways to another loop without saying with what."""


async def _of(made, **kind):
    return await after(await made, **kind)


async def _again(made, way):
    first = await made
    return await way(first, f"{first.alias}f")


async def _scheduled_in(made):
    return await scheduled(await made)


def asked(loop) -> dict:
    settings = settings_pb2.LoopSettings()
    settings.CopyFrom(loop.settings)
    settings.synthetic = False
    return MessageToDict(settings, preserving_proto_field_name=True)


@pytest.mark.parametrize(
    ("holder", "door"),
    [
        *(("message", door) for door in DOORS),
        *product(("task", "run", "write"), ("a message", "a fork's prompt again")),
    ],
)
async def test_what_was_asked_of_the_latest_loop_is_inherited_and_a_grant_never(client, project, holder, door) -> None:
    await models(client)
    run = await new_run(client, project)
    if holder == "run":
        await submit(run, set_params=pb.SetParams(patch=settings_pb2.RunSettingsPatch(yolo=True)))
    wanted = settings_pb2.LoopSettings(**RESTRICTED, **(GRANTED if holder != "run" else {}))
    if holder == "write":
        names = ("no_repo", "no_interaction", "no_web", "no_proposals", "project_instructions", "summaries", "model")
        attributes = {"mode": "ask", "yolo": True, **{name: RESTRICTED[name] for name in names}}
        start = set_(f"run://{run.alias}", "One.", json.dumps(attributes))
        await client.call("WriteEntries", **run.address, writes=[start])
        wanted = settings_pb2.LoopSettings(**{name: RESTRICTED[name] for name in ("mode", *names)}, assembly=1)
    elif holder == "message":
        await submit(run, user_message=pb.UserMessage(parts=[message_pb2.Part(text="One.")], settings=wanted))
    else:
        await client.call("EnqueueLoop", **run.address, prompt="One.", settings=wanted)
    await end(run)
    if holder == "run":
        await submit(run, set_params=pb.SetParams(patch=settings_pb2.RunSettingsPatch(yolo=False)))
    wanted.yolo = False
    wanted.ClearField("client_tools")
    assert asked(await DOORS[door](run)) == MessageToDict(wanted, preserving_proto_field_name=True)


ONCE = {
    "edits": [
        prompt_edit_pb2.PromptEdit(append=prompt_edit_pb2.PromptMessage(role=2, parts=[message_pb2.Part(text="END")]))
    ],
    "images": ["a.png"],
    "response_format": settings_pb2.ResponseFormat(schema="{}"),
    "budget": budget_pb2.Budget(turns_max=3),
}
KEPT = {
    "the prompt again": {"images", "response_format", "budget"},
    "another prompt in its place": {"images", "response_format", "budget"},
    "the reply once more": {"images", "response_format", "budget"},
    "a schedule": {"budget"},
    "a fork's schedule": {"budget"},
}
"""What goes with a prompt that is sent again, and with a task that goes on."""


@pytest.mark.parametrize("door", DOORS)
async def test_what_was_asked_for_one_prompt_is_for_that_alone(client, project, door) -> None:
    # OM28: edits of a prompt leave no trace in the next request
    run = await new_run(client, project)
    await run.enqueue(**ONCE)
    await end(run)
    loop = await DOORS[door](run)
    assert set(asked(loop)) & set(ONCE) == KEPT.get(door, set())


async def test_what_a_program_was_asked_is_not_inherited(client, project) -> None:
    # OM32
    await models(client)
    run = await new_run(client, project)
    await run.enqueue(no_web=True)
    await end(run)
    reasoning = settings_pb2.Reasoning(effort=settings_pb2.REASONING_EFFORT_HIGH)
    await run.enqueue(synthetic=True, no_repo=True, reasoning=reasoning, summaries=True, assembly=2)
    await end(run)
    named = asked((await run.enqueue()).loop)
    assert named == {"mode": "MODE_ACT", "model": "fast", "assembly": "ASSEMBLY_PACKET"}
    await end(run)
    assert "no_repo" not in asked(await after(run, user_message=said("Two.")))


async def test_the_latest_loop_of_a_user_may_wait(client, project) -> None:
    run = await new_run(client, project)
    await run.enqueue()
    await run.claim()
    await submit(run, user_message=said("Two.", mode=settings_pb2.MODE_ASK, no_web=True))
    loop = await after(run, user_message=said("Three."))
    assert (loop.settings.mode, loop.settings.no_web) == (settings_pb2.MODE_ASK, True)


@pytest.mark.parametrize("door", DOORS)
async def test_a_model_that_the_run_gets_later_wins_over_an_inherited_one(client, project, door) -> None:
    await models(client)
    run = await new_run(client, project)
    await run.enqueue(model="old")
    await end(run)
    await submit(run, set_params=pb.SetParams(patch=settings_pb2.RunSettingsPatch(model="third")))
    await client.call("DeleteModel", alias="old")
    assert (await DOORS[door](run)).settings.model == "third"


async def test_a_run_shows_the_settings_of_its_loop_by_the_names_of_the_contract(client, project) -> None:
    # RU037
    run = await new_run(client, project)
    await run.enqueue()
    shown = set(json.loads((await run.entry(f"run://{run.alias}")).attributes_json))
    assert shown == {"loop", *settings_pb2.LoopSettings.DESCRIPTOR.fields_by_name}


@pytest.mark.parametrize("again", [False, True])
async def test_a_model_that_is_set_again_to_what_it_is_wins_too(client, project, again) -> None:
    await models(client)
    run = await new_run(client, project)
    await run.enqueue(model="other")
    await end(run)
    if again:
        await submit(run, set_params=pb.SetParams(patch=settings_pb2.RunSettingsPatch(model="fast")))
    assert (await after(run, user_message=said("Two."))).settings.model == ("fast" if again else "other")
    await end(run)
    assert (await after(run, user_message=said("Three."))).settings.model == ("fast" if again else "other")


async def test_another_setting_of_the_run_hides_no_inherited_model(client, project) -> None:
    await models(client)
    run = await new_run(client, project)
    await run.enqueue(model="other")
    await end(run)
    await submit(run, set_params=pb.SetParams(patch=settings_pb2.RunSettingsPatch(temperature=0.5, yolo=False)))
    assert (await after(run, user_message=said("Two."))).settings.model == "other"


async def test_a_loop_that_waits_follows_the_run_unless_its_task_names_a_model(client, project) -> None:
    await models(client)
    run = await new_run(client, project)
    await run.enqueue(model="other")
    await run.claim()
    named = [
        (await submit(run, user_message=said("A.", mode=settings_pb2.MODE_ACT, model="old"))).loop.sequence,
        (await submit(run, user_message=said("B."))).loop.sequence,
        (await submit(run, user_message=said("C.", mode=settings_pb2.MODE_ACT))).loop.sequence,
    ]
    await submit(run, set_params=pb.SetParams(patch=settings_pb2.RunSettingsPatch(model="third")))
    found = {loop.sequence: loop.settings.model for loop in (await client.call("ListLoops", **run.address)).loops}
    assert [found[sequence] for sequence in (1, *named)] == ["other", "old", "third", "third"]


# ---- Grants that are taken away

ON, OFF = settings_pb2.RunSettingsPatch(yolo=True), settings_pb2.RunSettingsPatch(yolo=False)
ALLOWED, DENIED = (rule_pb2.Rule(verdict=verdict, tool="sh") for verdict in (1, 3))
GIVEN = {
    "the run's": (ON, {}, OFF),
    "the task's": (settings_pb2.RunSettingsPatch(temperature=0.5), {"yolo": True}, OFF),
    "both": (ON, {"yolo": True}, OFF),
    "a rule": (ALLOWED, {}, DENIED),
    "but rejected": (ON, {}, DENIED),
}


async def change(run, patch) -> None:
    """Change settings of a run, or set a rule of it."""
    if isinstance(patch, rule_pb2.Rule):
        await run.client.call("SetRule", **run.address, rule=patch)
    else:
        await run.client.call("ConfigureRun", **run.address, patch=patch)


def mark(path: str = "log://turn_1/sh/x", tool: str = "sh"):
    change = SetEntry("", "{}", state=State.RECORDED)
    return write_to_pb(EntryWrite(path, change, Tier.SYSTEM, granted_tool=tool))


@pytest.mark.parametrize("holder", GIVEN)
async def test_the_mark_of_an_effect_that_nobody_decided_on_needs_the_grant_at_that_moment(
    client, project, holder
) -> None:
    # RC02: from the next effect on
    given, settings, taken = GIVEN[holder]
    run = await new_run(client, project)
    await change(run, given)
    await run.enqueue(**settings)
    await run.claim()
    await run.begin()
    await run.write(mark())
    await run.enqueue(**settings)
    await change(run, taken)
    with pytest.raises(TurnwrightError) as refused:
        await run.write(set_("known://a", "x"), mark("log://turn_1/sh/y"))
    assert (refused.value.reason, refused.value.metadata["tool"]) == (Reason.GRANT_WITHDRAWN, "sh")
    assert await run.entry("known://a") is None
    shown = (await run.get()).loop.settings.yolo
    queued = (await client.call("ListLoops", **run.address)).loops[0].settings.yolo
    assert (shown, queued) == ((False, False) if taken is OFF else (settings.get("yolo", False),) * 2)


async def test_a_grant_of_another_tool_or_of_an_ended_loop_is_none(client, project) -> None:
    run = await new_run(client, project)
    await change(run, rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_ALLOW, tool="set"))
    await run.enqueue()
    await run.claim()
    turn = (await run.begin()).next.number
    for allowed in ("set", "sh"):
        writing = run.write(mark(f"log://turn_1/{allowed}/x", allowed))
        if allowed == "set":
            await writing
            continue
        with pytest.raises(TurnwrightError) as refused:
            await writing
        assert refused.value.reason is Reason.GRANT_WITHDRAWN
    await run.end(turn, loop=(200, "update", ""))
    with pytest.raises(TurnwrightError) as ended:
        await run.write(mark("log://turn_1/set/y", "set"))
    assert ended.value.reason is Reason.GRANT_WITHDRAWN


async def test_a_grant_holds_for_the_loops_of_no_fork(client, project) -> None:
    run = await new_run(client, project)
    await client.call("ConfigureRun", **run.address, patch=settings_pb2.RunSettingsPatch(yolo=True))
    await run.enqueue()
    await end(run)
    for child in (await fork(run, f"{run.alias}f"), await fork(run, f"{run.alias}g", 1), await branch(run, "b")):
        assert not (await child.get()).settings.yolo


# ---- Schedules

BUDGET = budget_pb2.Budget(turns_max=3, tokens_max=60_000)


async def set_schedule(run: Run, **fields):
    schedule = schedule_pb2.Schedule(
        **{"schedule_id": "s", "every": timedelta(seconds=1), "prompt": "Again.", **fields}
    )
    return (await run.client.call("SetSchedule", **run.address, schedule=schedule)).schedule


async def listed(run: Run):
    (one,) = (await run.client.call("ListSchedules", **run.address)).schedules
    return one


async def test_a_scheduled_loop_has_the_limits_of_its_task(client, project) -> None:
    run = await new_run(client, project)
    await run.enqueue(budget=BUDGET, yolo=True, images=["a.png"])
    await end(run)
    loop = await scheduled(run)
    assert (loop.settings.budget, loop.settings.yolo, list(loop.settings.images)) == (BUDGET, False, [])
    assert loop.settings.synthetic


async def test_a_schedule_has_settings_and_a_budget_of_its_own(client, project) -> None:
    await models(client)
    run = await new_run(client, project)
    await run.enqueue(budget=BUDGET, no_web=True)
    await end(run)
    own = settings_pb2.LoopSettings(
        mode=settings_pb2.MODE_ASK, model="other", yolo=True, no_repo=True, budget=budget_pb2.Budget(turns_max=1)
    )
    made = await set_schedule(run, settings=own)
    assert made.settings == own == (await listed(run)).settings
    loop = (await next_loop(run, 2)).settings
    assert (loop.mode, loop.model, loop.yolo, loop.no_repo, loop.no_web) == (own.mode, "other", True, True, True)
    assert loop.budget == own.budget
    await client.call("ConfigureRun", **run.address, patch=settings_pb2.RunSettingsPatch(yolo=False))
    assert not (await run.get()).loop.settings.yolo
    assert not (await listed(run)).settings.yolo


BAD = {
    "no such model": ({"settings": settings_pb2.LoopSettings(model="nowhere")}, Reason.MODEL_NOT_FOUND),
    "a bad budget": (
        {"settings": settings_pb2.LoopSettings(budget=budget_pb2.Budget(cost_usd_max=-1))},
        Reason.INVALID_FIELD,
    ),
    "a tick": ({"settings": settings_pb2.LoopSettings(no_web=True), "prompt": ""}, Reason.INVALID_FIELD),
}


@pytest.mark.parametrize("name", BAD)
async def test_settings_that_no_loop_can_have_are_refused_when_they_are_set(client, project, name) -> None:
    wish, reason = BAD[name]
    run = await new_run(client, project)
    with pytest.raises(TurnwrightError) as refused:
        await set_schedule(run, **wish)
    assert refused.value.reason is reason


async def test_a_schedule_whose_loops_fail_is_paused_and_told_until_it_is_set_again(client, project) -> None:
    run = await new_run(client, project)
    await run.enqueue()
    await end(run)
    await set_schedule(run)
    ends = [(500, "vendor_failed"), (200, "update"), *[(422, "answer"), (413, "context_exceeded")] * 2]
    for number, (status, reason) in enumerate(ends, 2):
        await next_loop(run, number)
        await end(run, status, reason)
    assert ((await listed(run)).failures, (await listed(run)).paused) == (4, False)
    await next_loop(run, number + 1)
    await end(run, 499, "aborted")
    assert (await listed(run)).failures == 4
    await next_loop(run, number + 2)
    await end(run, 499, "budget_exhausted:turns: 3 of 3")
    one = await listed(run)
    assert (one.failures, one.paused) == (5, True)
    notices = [path for path in (await run.view()).paths if path.endswith("/system_notice/s_paused")]
    assert len(notices) == 1
    assert "paused: its last 5 loops failed" in (await run.entry(notices[0])).body
    await asyncio.sleep(1.5)
    assert (await run.get()).loop.sequence == number + 2
    again = await set_schedule(run)
    assert (again.failures, again.paused) == (0, False)
    await next_loop(run, number + 3)
