"""What a turn runs with, as the store keeps it, and the messages that belong to turns. OM03-OM07, OM15."""

import pytest
from turnwright.store.v1 import ledger_pb2
from turnwright.types.v1 import settings_pb2, turn_pb2

from cases import load_cases
from contract.store.harness import next_turn, request, set_
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from contract.store.test_listing import token_with
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def test_a_turns_number_is_given_once_and_what_it_ran_with_stays(client, run):
    # OM03; case T06 of opencode/turn_join: a number is the store's to give, so nobody can give one twice
    told = [case["expect"]["error"] for case in load_cases("opencode/turn_join.jsonl") if case["id"] == "T06"]
    assert {*told} == {"duplicate_turn"}
    first = await run.begin()
    await run.end(first.next.number)
    second = await client.call("EndTurn", **run.address, epoch=run.epoch, next=next_turn(model="other"))
    assert (first.next.number, second.next.number) == (1, 2)
    turns = (await client.call("ListTurns", **run.address)).turns
    assert [(turn.number, turn.request.model) for turn in turns] == [(2, "other"), (1, "fast")]


SETTINGS = {
    "nothing": {},
    "all": {
        "mode": settings_pb2.MODE_ASK,
        "persona": "Be brief.",
        "response_format": settings_pb2.ResponseFormat(schema="{}", name="n", strict=True),
        "reasoning": settings_pb2.Reasoning(tokens=5),
        "kind": turn_pb2.REQUEST_KIND_COMPACTION,
        "calls": settings_pb2.CALL_STYLE_NATIVE,
        "context_length": 9,
        "tools": ["get"],
    },
    "an empty persona": {"persona": ""},
    "any object": {"response_format": settings_pb2.ResponseFormat()},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
async def test_what_a_turn_runs_with_comes_back_and_what_is_absent_stays_absent(client, run, settings):
    # OM03, OM05
    wanted = request(**settings)
    begun = await client.call("EndTurn", **run.address, epoch=run.epoch, next=ledger_pb2.NextTurn(request=wanted))
    [listed] = (await client.call("ListTurns", **run.address)).turns
    assert begun.next.request == listed.request == wanted


async def test_a_turn_runs_with_the_settings_that_its_run_has_when_it_begins(client, run):
    # C48, RC02: its owner hears of a change only later
    async def configure(**patch):
        patch = settings_pb2.RunSettingsPatch(**patch)
        await client.call("ConfigureRun", **run.address, patch=patch)

    owners = request(context_length=8192, temperature=0.2)
    await configure(context_limit=2048, temperature=0.5)
    await client.call("EndTurn", **run.address, epoch=run.epoch, next=ledger_pb2.NextTurn(request=owners))
    await configure(context_limit=0, temperature=0.7)
    await run.end(1, follows=next_turn(context_length=8192, temperature=0.2))
    turns = (await client.call("ListTurns", **run.address)).turns
    ran_with = [(turn.request.context_length, turn.request.temperature) for turn in turns]
    assert ran_with == [(8192, 0.7), (2048, 0.5)]


@pytest.mark.parametrize("kind", [turn_pb2.REPLY_KIND_REPLY, turn_pb2.REPLY_KIND_SUMMARY])
async def test_a_turn_says_what_its_reply_is(client, run, kind):
    # OM04
    await run.begin()
    await run.end(1, kind=kind)
    [turn] = (await client.call("ListTurns", **run.address)).turns
    assert turn.result.kind == kind


@pytest.mark.parametrize("path", ["prompt://{}", "assistant://{}"])
async def test_a_message_is_of_a_turn_that_there_is(run, path):
    # OM06: whoever reads it finds what it was made with
    await run.begin(set_(path.format(1), "a"))
    error = await refused(run.write(set_("known://kept", "k"), set_(path.format(2), "a")))
    assert (error.reason, error.metadata) == (Reason.TURN_NOT_FOUND, {"run": run.alias, "turn": "2"})
    assert await run.entry("known://kept") is None
    await run.end(1, follows=next_turn(set_(path.format(2), "a")))
    assert (await run.entry(path.format(2))).body == "a"


async def test_no_entry_is_stamped_with_a_turn_to_come(run):
    # OM06
    await run.begin()
    await run.write(set_("log://turn_1/get/a", "a", turn=1))
    error = await refused(run.write(set_("log://turn_1/get/a", "b", turn=2)))
    assert error.reason is Reason.TURN_NOT_FOUND
    assert (await run.entry("log://turn_1/get/a")).body == "a"


async def numbers(client, run, *named):
    return [turn.number for turn in (await client.call("ListTurns", **run.address, numbers=named)).turns]


async def test_turns_are_found_by_their_numbers_inherited_ones_too(client, run):
    # OM07
    for number in (1, 2, 3):
        await run.begin()
        await run.end(number)
    child = (await client.call("ForkRun", **run.address, turn=2)).run.run
    forked = type(run)(client, run.project, child)
    await forked.enqueue()
    await forked.claim()
    await forked.begin()
    assert await numbers(client, run, 3, 1, 1, 9) == [1, 3]
    assert await numbers(client, forked, 1, 2, 3, 4) == [1, 2, 3]
    error = await refused(client.call("ListTurns", **run.address, numbers=range(1, 1002)))
    assert error.reason is Reason.LIMIT_EXCEEDED


async def test_entries_are_listed_in_the_order_of_the_timeline_at_one_moment(client, run):
    # OM15
    for path in ("known://c", "known://a", "log://turn_0/x/1", "known://b"):
        await run.write(set_(path, path))
    query = {**run.address, "by_position": True, "schemes": ["known"], "page_size": 2}
    first = await client.call("ListEntries", **query)
    await run.write(set_("known://0", "later"), set_("known://c", "again"))
    second = await client.call("ListEntries", **query, page_token=first.next_page_token)
    found = [*first.entries, *second.entries]
    assert [entry.path for entry in found] == ["known://c", "known://a", "known://b"]
    assert found[0].body == "known://c"
    assert not second.next_page_token
    by_path = {**query, "by_position": False, "page_token": first.next_page_token}
    wrong = await client.call("ListEntries", **{**by_path, "page_token": ""})
    for bad in (wrong.next_page_token, token_with(first.next_page_token, path="9" * 5_000)):
        error = await refused(client.call("ListEntries", **query, page_token=bad))
        assert error.reason is Reason.INVALID_FIELD
