"""Runs, loops and turns: the queue, the state machine, claims and fences."""

import asyncio
import re

import pytest
from turnwright.types.v1 import model_pb2, settings_pb2, usage_pb2

from cases import params
from contract.store.harness import FAILED, PROPOSED, RECORDED, Client, Run, act, new_project, new_run, set_, start_store
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


# ---- Enqueueing


async def test_a_run_begins_with_its_entry(client, project):
    """RU003, RU037, RU109: the entry's body is the prompt, its attributes are the settings."""
    answer = await client.call("EnqueueLoop", project=project, run="fix", prompt="fix it", settings=act(no_web=True))
    run = Run(client, project, "fix")
    assert (answer.created, answer.run.status, answer.loop.status, answer.loop.sequence) == (True, 100, 100, 1)
    assert answer.run.loop == answer.loop
    entry = await run.entry("run://fix")
    assert entry.body == "fix it"
    for part in ('"mode": "act"', '"model": "fast"', '"no_web": true', '"loop": 1'):
        assert part in entry.attributes_json
    changed = await run.view(after=answer.cursor)
    assert changed.paths == ["run://fix"]


async def test_a_made_alias_is_short_and_tells_the_model(client, project):
    first = await client.call("EnqueueLoop", project=project, prompt="a", settings=act())
    second = await client.call("EnqueueLoop", project=project, prompt="a", settings=act())
    assert re.fullmatch(r"fast-\w{4}", first.run.run)
    assert first.run.run != second.run.run


async def test_an_alias_is_unique_in_its_project_only(client, project):
    """RU002, C13."""
    other = await new_project(client, "other")
    await new_run(client, project, "same")
    await new_run(client, other, "same")
    settings = settings_pb2.RunSettings(model="fast")
    error = await refused(client.call("CreateRun", project=project, run="same", settings=settings))
    assert (error.reason, error.metadata) == (Reason.RUN_EXISTS, {"project": project, "run": "same"})


async def test_a_run_needs_a_model(client, project):
    """RU100: no default; the error lists what there is."""
    await client.call("SetModel", model=model_pb2.Model(alias="slow", vendor_model="scripted/b"))
    error = await refused(client.call("EnqueueLoop", project=project, prompt="a", settings=act(model="")))
    assert (error.reason, error.metadata) == (Reason.MODEL_REQUIRED, {"available": "fast,slow"})
    error = await refused(client.call("EnqueueLoop", project=project, prompt="a", settings=act(model="gone")))
    assert (error.reason, error.metadata) == (Reason.MODEL_NOT_FOUND, {"model": "gone", "available": "fast,slow"})
    assert "fast, slow" in error.message
    assert not (await client.call("ListRuns", project=project)).runs


async def test_settings_are_inherited_when_the_loop_is_queued(client, project):
    run = await new_run(client, project, "r")
    loop = (await run.enqueue(model="")).loop
    assert loop.settings.model == "fast"
    await client.call("DeleteModel", alias="fast")
    assert (await refused(run.enqueue(model=""))).reason is Reason.MODEL_NOT_FOUND


async def test_run_settings_are_fixed_by_the_creation(client, project):
    """RU098, C51."""
    settings = settings_pb2.RunSettings(model="fast", temperature=0.0, persona="terse", context_limit=1024)
    other = settings_pb2.RunSettings(model="fast", temperature=1.5)
    task = {"project": project, "run": "r", "prompt": "a", "settings": act(model="")}
    for _ in range(2):
        await client.call("EnqueueLoop", **task, run_settings=settings)
    error = await refused(client.call("EnqueueLoop", **task, run_settings=other))
    assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": "run_settings"})
    assert (await Run(client, project, "r").get()).settings == settings


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", {"temperature": 2.01}),
        ("temperature", {"temperature": float("nan")}),
        ("context_limit", {"context_limit": 1023}),
    ],
)
async def test_run_settings_outside_their_range_are_refused(client, project, field, values):
    """RU098."""
    settings = settings_pb2.RunSettings(model="fast", **values)
    error = await refused(client.call("CreateRun", project=project, settings=settings))
    assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": field})


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"prompt": ""}, Reason.INVALID_FIELD, "prompt"),
        ({"prompt": "é" * (512 * 1024) + "x"}, Reason.LIMIT_EXCEEDED, "prompt"),
        ({"settings": act(mode=0)}, Reason.INVALID_FIELD, "settings.mode"),
        ({"settings": act(mode=9)}, Reason.INVALID_FIELD, "settings.mode"),
        ({"run": "not an alias"}, Reason.INVALID_FIELD, "run"),
        ({"run": "x" * 129}, Reason.LIMIT_EXCEEDED, "run"),
        ({"request_id": "x" * 129}, Reason.LIMIT_EXCEEDED, "request_id"),
    ],
    ids=["no-prompt", "long-prompt", "no-mode", "unknown-mode", "bad-alias", "long-alias", "long-request-id"],
)
async def test_a_malformed_loop_is_refused(client, project, fields, reason, field):
    error = await refused(client.call("EnqueueLoop", **{"project": project, "prompt": "a", "settings": act()} | fields))
    assert (error.reason, error.metadata["field"]) == (reason, field)
    assert not (await client.call("ListRuns", project=project)).runs


async def test_unknown_names_are_not_found(client, project):
    assert (await refused(client.call("GetRun", project="none", run="r"))).metadata == {"project": "none"}
    error = await refused(client.call("GetRun", project=project, run="r"))
    assert (error.reason, error.metadata) == (Reason.RUN_NOT_FOUND, {"project": project, "run": "r"})


async def test_the_queue_of_a_run_is_bounded(tmp_path, own_db):
    server = await start_store(tmp_path, loops_queued_max=2)
    client = Client(server.address)
    run = await new_run(client, await new_project(client), "r")
    await run.enqueue()
    await run.enqueue()
    error = await refused(run.enqueue())
    assert (error.reason, error.metadata) == (Reason.QUEUE_FULL, {"queue": "loops", "limit": "2"})
    await run.claim()
    assert (await run.enqueue()).loop.sequence == 3
    await client.close()
    await server.stop()


# ---- The queue


async def test_loops_of_a_run_are_worked_on_in_order_one_at_a_time(client, project):
    """RU006, RU108-RU110."""
    run = await new_run(client, project, "r")
    for prompt in ("one", "two", "three"):
        await run.enqueue(prompt)
    assert (await run.get()).loops_queued == 3
    for prompt in ("one", "two", "three"):
        claimed = await run.claim()
        assert (claimed.loop.prompt, claimed.loop.status, claimed.run.status) == (prompt, 102, 102)
        again = await run.claim()
        assert again.loop.prompt == prompt
        await run.end(0, loop=(200, "update", prompt))
    claimed = await run.claim()
    assert (claimed.HasField("loop"), claimed.run.status, claimed.run.summary) == (False, 200, "three")
    loops = (await client.call("ListLoops", **run.address)).loops
    assert [(loop.sequence, loop.status) for loop in loops] == [(3, 200), (2, 200), (1, 200)]


async def test_a_run_has_the_beginning_of_its_first_prompt_as_its_title(client, project):
    run, other = await new_run(client, project, "r"), await new_run(client, project, "other")
    await new_run(client, project, "none")
    prompts = ("Fix\n the\ttests. " + "And more. " * 40, "Something else.")
    for prompt in prompts:
        await run.enqueue(prompt)
    await other.enqueue("One.")
    await run.claim()
    await run.end(0, loop=(200, "update", "Done."))
    title = " ".join(prompts[0].split())[:200]
    assert (await run.get()).title == title
    runs = (await client.call("ListRuns", project=project)).runs
    assert {one.run: one.title for one in runs} == {"r": title, "other": "One.", "none": ""}


async def test_an_abort_ends_the_active_loop_only(client, run):
    """RU111, C36: the flag is durable, and queued loops then start."""
    await run.enqueue("next")
    answer = await client.call("AbortRun", **run.address)
    assert (answer.run.status, answer.run.loops_queued) == (102, 1)
    begun = await run.begin()
    assert (await run.claim()).abort_requested
    ended = await run.end(begun.next.number, loop=(499, "aborted", ""))
    assert (ended.run.status, ended.run.loop.status) == (499, 499)
    claimed = await run.claim()
    assert (claimed.loop.prompt, claimed.run.status, claimed.abort_requested) == ("next", 102, False)


async def test_an_abort_that_names_a_loop_ends_no_other(client, run):
    await run.enqueue("next")
    before = (await client.call("GetRun", **run.address)).run
    for loop in (2, 3):
        assert (await client.call("AbortRun", **run.address, loop=loop)).run == before
    assert not (await run.claim()).abort_requested
    await client.call("AbortRun", **run.address, loop=1)
    assert (await run.claim()).abort_requested


async def test_an_abort_of_an_idle_run_changes_nothing(client, project):
    run = await new_run(client, project, "r")
    before = (await client.call("GetRun", **run.address)).run
    assert (await client.call("AbortRun", **run.address)).run == before
    await run.enqueue()
    assert not (await run.claim()).abort_requested


async def listed(client):
    return [run.run for run in (await client.call("ListWork")).runs]


async def release(run):
    await run.client.call("ReleaseRun", **run.address, epoch=run.epoch)


async def test_list_work_names_runs_that_an_owner_can_go_on_with(own_client, own_project):
    """RU109, RU110."""
    idle = await new_run(own_client, own_project, "idle")
    later = await new_run(own_client, own_project, "later")
    first = await new_run(own_client, own_project, "first")
    await first.enqueue()
    await later.enqueue()
    assert await listed(own_client) == ["first", "later"]
    await first.claim()
    assert await listed(own_client) == ["later"]
    await first.begin()
    await first.write(set_("log://turn_1/sh/x", "", "{}", state=PROPOSED), run_status=202)
    await first.enqueue("behind")
    await release(first)
    assert await listed(own_client) == ["later"]
    await own_client.call("ResolveProposal", **first.address, path="log://turn_1/sh/x", accept={})
    assert await listed(own_client) == ["first", "later"]
    await first.claim()
    await first.write(run_status=102)
    await first.end(1, loop=(200, "update", ""))
    await release(first)
    assert await listed(own_client) == ["later", "first"]
    assert (await idle.get()).status == 100


async def test_a_waiting_run_has_work_when_its_abort_is_asked_for(own_client, own_run):
    """RU111, C36."""
    await own_run.begin()
    await own_run.write(set_("log://turn_1/sh/x", "", "{}", state=PROPOSED), run_status=202)
    await release(own_run)
    assert await listed(own_client) == []
    await own_client.call("AbortRun", **own_run.address)
    assert await listed(own_client) == ["r1"]


# ---- Turns


async def test_turn_numbers_grow_over_all_loops_of_a_run(run):
    """RU001."""
    for number in (1, 2):
        assert (await run.begin()).next.number == number
        await run.end(number)
    await run.end(0, loop=(200, "update", ""))
    await run.enqueue()
    await run.claim()
    begun = await run.begin(set_("prompt://{turn}", "x"), set_("log://turn_{turn}/a/{turn}", "x"))
    assert (begun.next.number, begun.next.loop) == (3, 2)
    assert set((await run.view()).paths) >= {"prompt://3", "log://turn_3/a/3"}
    assert ((await run.get()).turn, (await run.get()).loop.first_turn) == (3, 3)


async def test_a_turn_is_opened_when_none_is_open(run):
    await run.begin()
    error = await refused(run.begin())
    assert (error.reason, error.metadata) == (
        Reason.TRANSITION_FORBIDDEN,
        {"from": "1", "to": "2", "object": "turn"},
    )
    assert (await refused(run.end(2))).reason is Reason.TRANSITION_FORBIDDEN
    assert (await refused(run.end(0, loop=(200, "", "")))).reason is Reason.TRANSITION_FORBIDDEN
    assert (await run.end(1)).run.turn == 1


async def test_a_turn_needs_a_running_loop(client, project):
    run = await new_run(client, project, "r")
    await run.claim()
    assert (await refused(run.begin())).reason is Reason.TRANSITION_FORBIDDEN


async def test_the_loop_adds_up_its_turns(client, run):
    """RU001, RU096."""
    usage = usage_pb2.Usage(
        prompt_tokens=10, cached_tokens=4, completion_tokens=5, reasoning_tokens=2, total_tokens=15, cost_usd=0.5
    )
    await run.begin()
    first = await run.end(1, usage=usage, status=102, reason="continue", strikes=1, fingerprint="ab")
    assert (first.run.loop.turns, first.run.loop.status, first.run.status) == (1, 102, 102)
    await run.begin()
    last = await run.end(2, usage=usage, status=200, loop=(200, "update", "all done"))
    assert (last.run.loop.turns, last.run.loop.usage.total_tokens, last.run.loop.usage.cost_usd) == (2, 30, 1.0)
    assert (last.run.loop.summary, last.run.summary, last.run.loop.HasField("end_time")) == (
        "all done",
        "all done",
        True,
    )
    turns = (await client.call("ListTurns", **run.address)).turns
    assert [turn.number for turn in turns] == [2, 1]
    assert (turns[1].result.strikes, turns[1].result.usage, turns[1].request.model) == (1, usage, "fast")


@pytest.mark.parametrize(
    ("fingerprint", "packet_digest"),
    [
        ("0f" * 32, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("AB" * 32, "ab"),
        ("", "0" * 64),
    ],
)
async def test_texts_of_a_result_are_read_as_they_were_given(client, run, fingerprint, packet_digest):
    """Digests are stored shorter than others."""
    await run.begin()
    await run.end(1, status=102, reason="continue", fingerprint=fingerprint, packet_digest=packet_digest)
    [turn] = (await client.call("ListTurns", **run.address)).turns
    assert (turn.result.fingerprint, turn.result.packet_digest) == (fingerprint, packet_digest)


async def test_entries_of_an_end_are_written_with_it(run):
    begun = await run.begin()
    await run.end(1, set_("log://turn_1/update/done", "ok"))
    assert (await run.entry("log://turn_1/update/done")).turn == 1
    assert (await run.view(after=begun.cursor)).paths == ["log://turn_1/update/done"]


@pytest.mark.parametrize(
    ("status", "reason", "left_at"),
    [
        (200, "update", 200), (204, "update", 200), (422, "update", 200), (413, "budget", 500),
        (499, "aborted", 499), (499, "rejected", 200), (500, "error", 500),
    ],
)  # fmt: skip
async def test_a_loop_that_ends_leaves_the_run_at_its_status(run, status, reason, left_at):
    """RU004, RU005, C6, C27."""
    ended = await run.end(0, loop=(status, reason, "said"))
    assert (ended.run.loop.status, ended.run.loop.reason, ended.run.status) == (status, reason, left_at)


@pytest.mark.parametrize("status", [0, 100, 102, 202, 404])
async def test_a_loop_ends_at_no_other_status(run, status):
    assert (await refused(run.end(0, loop=(status, "", "")))).metadata == {"field": "loop_end.status"}


async def test_the_summary_stays_until_another_update_ends_a_loop(run):
    await run.end(0, loop=(200, "update", "first"))
    for status, summary, shown in ((499, "", "first"), (204, "", ""), (200, "second", "second")):
        await run.enqueue()
        await run.claim()
        assert (await run.end(0, loop=(status, "x", summary))).run.summary == shown


# ---- The state machine


async def brought_to(client, project, status):
    """A run at a status, by rpcs alone."""
    run = await new_run(client, project)
    if status == 100:
        await run.claim()
        return run
    await run.enqueue()
    await run.claim()
    if status == 202:
        await run.write(run_status=202)
    elif status != 102:
        await run.end(0, loop=(status, "x", ""))
    assert (await run.get()).status == status
    return run


async def move(run, status):
    """Move a run as an owner would; False when no rpc leads there."""
    now = await run.get()
    if status == 102 and now.status in (100, 200, 499, 500):
        await run.enqueue()
        await run.claim()
    elif status in (102, 202):
        await run.write(run_status=status)
    elif status in (200, 499, 500):
        await run.end(0, loop=(status, "x", ""))
    else:
        await run.write(run_status=status)


@pytest.mark.parametrize("case", params("rummy/run_states.jsonl"))
async def test_the_run_state_machine_over_rpcs(client, project, case):
    """RU101-RU107 as far as rpcs lead; the trigger has every pair (unit tests)."""
    source, target = case["input"]["from"], case["input"]["to"]
    run = await brought_to(client, project, source)
    (error,) = await asyncio.gather(move(run, target), return_exceptions=True)
    moved = error is None
    assert moved or error.reason in (Reason.TRANSITION_FORBIDDEN, Reason.INVALID_FIELD)
    # An idle run ends nothing: its status may be written again, but no rpc does so.
    idle = source in (100, 200, 499, 500) and target != 102
    assert moved == (case["expected"]["allowed"] and not idle)
    assert (await run.get()).status == (target if moved else source)


async def test_the_active_loop_moves_along(run):
    written = await run.write(set_("known://a", "x"), run_status=202)
    got = await run.get()
    assert (got.status, got.loop.status) == (202, 202)
    assert got.revision == written.cursor.run_revision
    assert (await refused(run.begin())).reason is Reason.TRANSITION_FORBIDDEN
    await run.write(run_status=102)
    assert ((await run.get()).status, (await run.get()).loop.status) == (102, 102)


async def test_a_refused_move_refuses_the_writes_too(run):
    await run.write(run_status=202)
    error = await refused(run.end(0, set_("known://a", "x"), loop=(500, "x", "")))
    assert (error.reason, error.metadata) == (
        Reason.TRANSITION_FORBIDDEN,
        {"from": "202", "to": "500", "object": "run"},
    )
    assert await run.entry("known://a") is None


async def test_only_an_owner_moves_a_run(client, run):
    error = await refused(client.call("WriteEntries", **run.address, run_status=202))
    assert error.metadata == {"field": "epoch"}


# ---- Claims


async def test_a_claim_fences_out_the_owner_before(client, run):
    stale = Run(client, run.project, run.alias, run.epoch)
    await run.claim()
    for call in (
        stale.begin(),
        stale.write(set_("known://a", "x")),
        stale.end(0, loop=(200, "", "")),
        stale.write(run_status=202),
    ):
        error = await refused(call)
        assert (error.reason, error.metadata) == (Reason.LEASE_LOST, {"run": "r1", "epoch": str(run.epoch)})
    assert await run.entry("known://a") is None
    assert (await run.begin()).next.number == 1


async def test_a_future_epoch_is_as_wrong_as_a_past_one(client, run):
    ahead = Run(client, run.project, run.alias, run.epoch + 1)
    assert (await refused(ahead.begin())).reason is Reason.LEASE_LOST


async def test_a_claim_returns_the_ledger(own_client, own_run):
    for number in range(1, 36):
        await own_run.begin()
        await own_run.end(number, strikes=number)
    await own_run.begin(set_("prompt://{turn}", "x"))
    paths = ["log://turn_36/set/b", "log://turn_36/get/a", "log://turn_36/get/c"]
    await own_run.write(*(set_(path, "", '{"tool":"x"}', state=RECORDED) for path in paths))
    await own_run.write(set_(paths[0], "no", state=FAILED, outcome="conflict:409"))
    claimed = await own_run.claim()
    assert (claimed.project_root, claimed.workspace_id) == ("/srv/demo", "ws-demo")
    assert (claimed.model.vendor_model, claimed.loop.turns, claimed.run.turn) == ("scripted/a", 35, 36)
    assert (claimed.open_turn.number, claimed.open_turn.HasField("result")) == (36, False)
    assert [record.path for record in claimed.records] == paths
    assert [record.status for record in claimed.records] == [409, 100, 100]
    assert [turn.number for turn in claimed.recent_turns] == list(range(4, 36))
    assert claimed.recent_turns[-1].result.strikes == 35


async def test_a_claim_does_without_a_model_that_is_gone(client, run):
    await client.call("DeleteModel", alias="fast")
    assert not (await run.claim()).HasField("model")


async def test_the_results_of_another_loop_are_not_recent(run):
    await run.begin()
    await run.end(1, loop=(200, "x", ""))
    await run.enqueue()
    assert not (await run.claim()).recent_turns
