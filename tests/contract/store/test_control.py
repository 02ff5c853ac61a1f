"""Control of runs: aliases, settings, budgets and what was spent. Rows RU098, RU230, RU232, RU240; C13, C31."""

from datetime import timedelta

import pytest
from turnwright.store.v1 import ledger_pb2
from turnwright.types.v1 import budget_pb2, settings_pb2, usage_pb2
from turnwright_values.types import Tier

from contract.store.harness import Client, new_project, new_run, set_, start_store, working_run
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import ExistsError, InvalidError, MissingError, PreconditionError, Reason, TurnwrightError

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

DONE = (200, "update", "done")


async def ended_run(client, project, alias="r", turns=1, **result):
    run = await working_run(client, project, alias)
    for number in range(1, turns + 1):
        await run.begin(set_(f"known://{number}", "x"))
        await run.end(number, loop=DONE if number == turns else None, **result)
    return run


async def rename(client, project, run, new_run, **more):
    return (await client.call("RenameRun", project=project, run=run, new_run=new_run, **more)).run


async def configure(client, project, run, **patch):
    wanted = settings_pb2.RunSettingsPatch(**patch)
    return (await client.call("ConfigureRun", project=project, run=run, patch=wanted)).run


async def test_a_run_is_addressed_by_its_new_alias(client, project):
    await ended_run(client, project)
    renamed = await rename(client, project, "r", "better")
    found = (await client.call("GetRun", project=project, run="better")).run
    assert found.title == "do it"
    assert (renamed.run, found) == ("better", renamed)
    with pytest.raises(MissingError):
        await client.call("GetRun", project=project, run="r")


async def test_the_old_alias_is_free(client, project):
    await ended_run(client, project)
    await rename(client, project, "r", "better")
    again = await working_run(client, project, "r")
    assert ((await again.get()).turn, (await again.view()).paths) == (0, ["run://r"])


async def test_a_repeated_rename_returns_the_first_answer(client, project):
    await ended_run(client, project)
    first = await rename(client, project, "r", "better", request_id="1")
    assert await rename(client, project, "r", "better", request_id="1") == first


@pytest.mark.parametrize("alias", ["", "a b", "x" * 129])
async def test_an_alias_that_is_none_is_refused(client, project, alias):
    await ended_run(client, project)
    with pytest.raises(InvalidError):
        await rename(client, project, "r", alias)


async def test_a_taken_alias_is_refused(client, project):
    await ended_run(client, project)
    await new_run(client, project, "other")
    with pytest.raises(ExistsError):
        await rename(client, project, "r", "other")


async def test_a_run_with_a_loop_keeps_its_alias(client, project):
    await working_run(client, project, "r")
    with pytest.raises(PreconditionError) as caught:
        await rename(client, project, "r", "better")
    assert caught.value.metadata["object"] == "run"


async def test_a_fork_finds_the_turns_of_its_renamed_parent(client, project):
    await ended_run(client, project, turns=2)
    await client.call("ForkRun", project=project, run="r", new_run="child")
    await rename(client, project, "r", "better")
    grandchild = (await client.call("ForkRun", project=project, run="child", new_run="older", turn=1)).run
    child = (await client.call("GetRun", project=project, run="child")).run
    assert (grandchild.turn, child.forked_from.run) == (1, "better")
    await client.call("DeleteRun", project=project, run="older")
    with pytest.raises(ExistsError):
        await rename(client, project, "better", "older")


async def test_settings_change_one_by_one(client, project):
    await new_run(client, project, "r")
    await configure(client, project, "r", temperature=0.5, context_limit=2048, yolo=True, calls=2)
    run = await configure(client, project, "r", persona="Be brief.")
    assert run.settings == settings_pb2.RunSettings(
        model="fast", temperature=0.5, persona="Be brief.", context_limit=2048, yolo=True, calls=2
    )
    run = await configure(client, project, "r", persona="", context_limit=0, yolo=False, calls=0)
    assert run.settings == settings_pb2.RunSettings(model="fast", temperature=0.5)
    assert (await client.call("GetRun", project=project, run="r")).run == run


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        ({"model": "none"}, MissingError),
        ({"temperature": 2.5}, InvalidError),
        ({"context_limit": 1023}, InvalidError),
        ({"persona": "x" * 65537}, InvalidError),
        ({"budget": budget_pb2.Budget(cost_usd_max=-1)}, InvalidError),
        ({"budget": budget_pb2.Budget(wall_max=timedelta(seconds=-1))}, InvalidError),
        ({"budget": budget_pb2.Budget(tokens_max=2**53)}, InvalidError),
    ],
)
async def test_settings_out_of_range_are_refused(client, project, patch, error):
    run = await new_run(client, project, "r")
    before = await run.get()
    with pytest.raises(error):
        await configure(client, project, "r", **patch)
    assert await run.get() == before


async def test_a_persona_stays_after_the_first_turn(client, project):
    await ended_run(client, project)
    with pytest.raises(PreconditionError) as caught:
        await configure(client, project, "r", persona="Another.")
    assert caught.value.metadata["object"] == "persona"


async def test_a_loop_keeps_what_was_asked_for_it_and_nothing_that_its_run_grants(client, project):
    run = await new_run(client, project, "r")
    await configure(client, project, "r", yolo=True)
    budget = budget_pb2.Budget(turns_max=3, tokens_max=1000, cost_usd_max=0.5, wall_max=timedelta(seconds=60))
    queued = await run.enqueue(budget=budget)
    await configure(client, project, "r", yolo=False)
    loop = (await client.call("ListLoops", project=project, run="r")).loops[0]
    assert (loop.settings.yolo, loop.settings.budget) == (False, budget)
    assert queued.loop.settings == loop.settings


async def test_a_fork_has_the_limits_of_its_parent_and_nothing_spent(client, project):
    run = await ended_run(client, project, usage=usage_pb2.Usage(total_tokens=10, cost_usd=0.25))
    budget = budget_pb2.Budget(turns_max=9)
    await configure(client, project, "r", budget=budget)
    child = (await client.call("ForkRun", project=project, run="r", new_run="child")).run
    spent = (await client.call("GetRun", project=project, run="child")).spent
    assert (child.settings.budget, spent) == (budget, budget_pb2.Spend())
    assert (await run.get()).settings.budget == budget


async def test_spend_adds_up_over_the_turns_of_a_run_and_of_a_loop(client, project):
    usage = usage_pb2.Usage(prompt_tokens=8, completion_tokens=2, total_tokens=10, cost_usd=0.25)
    run = await ended_run(
        client,
        project,
        turns=2,
        usage=usage,
        work_duration=timedelta(milliseconds=1500),
        lost_tokens=5,
        lost_cost_usd=0.125,
    )
    first = await client.call("GetRun", project=project, run="r")
    await run.enqueue()
    await run.claim()
    await run.begin()
    await run.end(3, usage=usage_pb2.Usage(prompt_tokens=4, total_tokens=7), work_duration=timedelta(milliseconds=500))
    await run.begin()
    spent = await client.call("GetRun", project=project, run="r")
    assert spent.spent == budget_pb2.Spend(
        turns=4,
        tokens=37,
        lost_tokens=10,
        cost_usd=0.75,
        turns_without_cost=1,
        wall=timedelta(seconds=3.5),
        prompt_tokens=20,
    )
    assert spent.loop_spent == budget_pb2.Spend(
        turns=2, tokens=7, turns_without_cost=1, wall=timedelta(seconds=0.5), prompt_tokens=4
    )
    assert first.loop_spent == budget_pb2.Spend(
        turns=2, tokens=30, lost_tokens=10, cost_usd=0.75, wall=timedelta(seconds=3), prompt_tokens=16
    )


@pytest.mark.parametrize("limited", ["run", "loop"])
async def test_a_claim_tells_what_was_spent_where_a_budget_limits_it(client, project, limited):
    usage = usage_pb2.Usage(total_tokens=10, cost_usd=0.25)
    run = await ended_run(client, project, usage=usage, work_duration=timedelta(seconds=2))
    budget = budget_pb2.Budget(turns_max=9)
    await run.enqueue(**({"budget": budget} if limited == "loop" else {}))
    claims = [await run.claim()]
    if limited == "run":
        await configure(client, project, "r", budget=budget)
        claims.append(await run.claim())
    spent = budget_pb2.Spend(turns=1, tokens=10, cost_usd=0.25, wall=timedelta(seconds=2))
    told = [(one.spent if one.HasField("spent") else None, one.HasField("loop_spent")) for one in claims]
    assert told == [*([(None, False)] if limited == "run" else []), (spent, True)]
    assert claims[-1].loop_spent == budget_pb2.Spend()


async def test_attributes_of_a_run_entry_give_its_loop_a_budget(client, project):
    run = await new_run(client, project, "r")
    attributes = '{"mode": "act", "model": "fast", "budget": {"turns_max": 2, "wall_s_max": 1.5}}'
    write = set_("run://r", "do it", attributes, writer=Tier.CLIENT)
    await client.call("WriteEntries", **run.address, writes=[write])
    loop = (await client.call("ListLoops", **run.address)).loops[0]
    assert loop.settings.budget == budget_pb2.Budget(turns_max=2, wall_max=timedelta(seconds=1.5))


@pytest.mark.parametrize(
    "budget",
    [
        "3",
        '{"turns": 2}',
        '{"turns_max": 1.5}',
        '{"tokens_max": -1}',
        '{"turns_max": 4294967296}',
        '{"wall_s_max": true}',
    ],
)
async def test_attributes_that_are_no_budget_are_refused(client, project, budget):
    run = await new_run(client, project, "r")
    write = set_("run://r", "do it", f'{{"mode": "act", "budget": {budget}}}', writer=Tier.CLIENT)
    with pytest.raises(InvalidError):
        await client.call("WriteEntries", **run.address, writes=[write])


async def test_messages_are_reported_to_the_next_turn_in_their_order(client, project):
    run = await working_run(client, project, "r")
    await run.begin()
    address = run.address
    first = await client.call("InjectMessage", **address, message="One.", request_id="1")
    again = await client.call("InjectMessage", **address, message="One.", request_id="1")
    await run.end(1)
    second = await client.call("InjectMessage", **address, message="Two.")
    third = await client.call("InjectMessage", **address, message="Three.")
    assert first == again
    assert [one.path for one in (first, second, third)] == [
        "log://turn_0/inject/message",
        "log://turn_1/inject/message",
        "log://turn_1/inject/message+2",
    ]
    assert (await run.entry(third.path)).body == "Three."
    assert third.run.status == 102


async def test_only_so_many_messages_wait_for_a_turn(tmp_path, own_db):
    # RC11
    server = await start_store(tmp_path, loops_queued_max=2)
    client = Client(server.address)
    run = await working_run(client, await new_project(client), "r")
    for message in ("One.", "Two."):
        await client.call("InjectMessage", **run.address, message=message)
    with pytest.raises(TurnwrightError) as told:
        await client.call("InjectMessage", **run.address, message="Three.")
    assert (told.value.reason, told.value.metadata) == (Reason.QUEUE_FULL, {"queue": "messages", "limit": "2"})
    await run.begin()
    await run.end(1)
    await client.call("InjectMessage", **run.address, message="Three.")
    await client.close()
    await server.stop()


@pytest.mark.parametrize("message", ["", " ", "x" * 65537])
async def test_a_message_has_a_size(client, project, message):
    run = await new_run(client, project, "r")
    with pytest.raises(InvalidError):
        await client.call("InjectMessage", **run.address, message=message)


@pytest.mark.parametrize(
    ("result", "unpriced"),
    [
        ({"lost_tokens": 5, "finish": "stop"}, 1),
        ({"lost_tokens": 5, "finish": "error", "error": "stream_interrupted:500"}, 0),
        ({"lost_tokens": 5, "finish": "aborted"}, 0),
        ({"lost_tokens": 5, "usage": usage_pb2.Usage(total_tokens=1, cost_usd=0.25)}, 0),
    ],
    ids=["replied", "failed", "aborted", "priced"],
)
async def test_a_reply_of_which_nothing_is_reported_is_a_turn_without_a_price(client, project, result, unpriced):
    await ended_run(client, project, **result)
    spent = (await client.call("GetRun", project=project, run="r")).spent
    assert (spent.lost_tokens, spent.turns_without_cost) == (5, unpriced)


async def write_title(client, project, call_id="one", run="r", **call):
    """The call for a title; the model to call, if it is the run's call."""
    call = ledger_pb2.TitleCall(call_id=call_id, model="fast", loop=1, reserved_tokens=100, **call)
    answer = await client.call("WriteTitle", project=project, run=run, call=call)
    return answer.model.alias if answer.HasField("model") else None


async def test_one_call_for_a_title_is_a_runs_and_nobody_elses(client, project):
    await ended_run(client, project)
    before = await client.call("GetRun", project=project, run="r")
    assert await write_title(client, project) == "fast"
    assert await write_title(client, project, "two") is None
    reserved = await client.call("GetRun", project=project, run="r")
    used = usage_pb2.Usage(prompt_tokens=20, completion_tokens=3, total_tokens=23, cost_usd=0.5)
    assert await write_title(client, project, "two", title="Theirs", usage=used) is None
    assert await write_title(client, project, usage=used, title="Ours") == "fast"
    # Whoever repeats it changes nothing.
    assert await write_title(client, project, usage=usage_pb2.Usage(total_tokens=9), title="Late") == "fast"
    after = await client.call("GetRun", project=project, run="r")
    assert [one.spent.tokens - before.spent.tokens for one in (reserved, after)] == [100, 23]
    assert (reserved.spent.lost_tokens, after.spent.lost_tokens) == (100, 0)
    assert (after.spent, after.loop_spent.tokens) == (after.loop_spent, after.spent.tokens)
    assert (reserved.run.title, after.run.title) == ("do it", "Ours")
    assert after.run.revision > before.run.revision
    mine = await configure(client, project, "r", title="Mine")
    found = (await client.call("GetRun", project=project, run="r")).run
    assert (mine.settings.title, found.title) == ("Mine", "Mine")


async def test_a_run_that_a_person_has_named_gets_no_call_for_a_title(client, project):
    await ended_run(client, project)
    await configure(client, project, "r", title="Mine")
    assert await write_title(client, project) is None
    with pytest.raises(InvalidError, match="one line"):
        await configure(client, project, "r", title="a\u202eb")
    with pytest.raises(InvalidError, match="one line"):
        await write_title(client, project, title="a\nb")
