"""What a run leaves behind: loops and turns, one record for each action, and what of it the model reads.

Rows RU001, RU028, RU053, RU074-RU077, RU080, RU083, RU137, RU139, RU165, RU167, RU196, RU198, RU224; decisions C3, C12.
"""

from __future__ import annotations

import json
import re

import pytest
from turnwright.schemes.v1 import scheme_service_pb2, scheme_service_pb2_grpc
from turnwright.types.v1 import entry_pb2, settings_pb2
from turnwright_values.types import State, Tier

from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from services import SECRET, running
from turnwright_core.runs import LOOP_ENDED
from turnwright_core.wire.schemes import scheme_from_pb
from turnwright_kit.peer import Peer

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
MANIFEST = "log://turn_0/repo/manifest"


async def worked(services, *replies, **settings):
    """A loop from its prompt to its end."""
    services.script(*replies)
    return await services.until(await services.act(**settings))


async def paths(services, pattern: str) -> list[str]:
    return [entry.path async for entry in services.client.list_entries(services.project, "r", pattern)]


async def attributes(services, path: str) -> dict:
    return json.loads((await services.entry(path)).attributes_json)


async def schemes(services) -> dict[str, tuple[str, set[int]]]:
    """The category of each scheme, and the tiers that may write it."""
    peer = Peer("store", services.addresses["store"], SECRET, 10.0)
    stub = scheme_service_pb2_grpc.SchemeServiceStub(peer.channel)
    listed = (await peer.call(stub.ListSchemes, scheme_service_pb2.ListSchemesRequest())).schemes
    await peer.close()
    assert len({scheme.name for scheme in listed}) == len(listed)
    return {scheme.name: (scheme_from_pb(scheme).category, set(scheme.writable_by)) for scheme in listed}


# Loops and turns ----------------------------------------------------------------------------------------------------------


async def test_a_project_has_runs_that_have_loops_that_have_turns(services):
    """RU001: a turn is one answer of the model; turns are numbered through the run, loops in it."""
    other = services.root / "other"
    other.mkdir()
    elsewhere = (await services.client.init_project(str(other))).name
    await worked(services, GO_ON, DONE)
    await worked(services, DONE, prompt="Again.")
    answer = await services.client.get_run(services.project, "r", turns_max=10)
    assert [loop.sequence for loop in sorted(answer.loops, key=lambda loop: loop.sequence)] == [1, 2]
    assert sorted((turn.number, turn.loop) for turn in answer.turns) == [(1, 1), (2, 1), (3, 2)]
    assert await paths(services, "assistant://*") == ["assistant://1", "assistant://2", "assistant://3"]
    assert [run.run async for run in services.client.list_runs(services.project)] == ["r"]
    assert [run async for run in services.client.list_runs(elsewhere)] == []


@pytest.mark.parametrize(("status", "turns"), [(102, 2), (200, 1), (204, 1), (422, 1)])
async def test_an_update_goes_on_or_ends_the_loop_and_its_record_says_which(services, status, turns):
    """RU028, RU076."""
    loop = await worked(services, f'<update status="{status}">Words.</update>', DONE)
    record = await attributes(services, "log://turn_1/update/1")
    assert (loop.status, loop.turns, record["status"]) == (200 if status == 102 else status, turns, status)
    assert (await services.entry("log://turn_1/update/1")).body == "Words."


async def test_usage_is_reported_for_each_turn_and_summed_over_its_run(services):
    """RU224: how full the window was is a figure of the turn; what was paid for is a sum over all loops."""
    await worked(services, DONE)
    await worked(services, GO_ON, GO_ON, DONE, prompt="Again.")
    answer = await services.client.get_run(services.project, "r", turns_max=10)
    results = [turn.result for turn in reversed(answer.turns)]
    assert len(results) == 4
    assert all(result.packet_tokens > 0 for result in results)
    assert [result.packet_tokens for result in results] == sorted(result.packet_tokens for result in results)
    inputs = [result.usage.prompt_tokens for result in results]
    assert answer.telemetry.usage.prompt_tokens == inputs[-1]
    assert answer.spent.prompt_tokens == sum(inputs) > answer.telemetry.usage.prompt_tokens
    assert [loop.usage.prompt_tokens for loop in answer.loops] == [sum(inputs[1:]), inputs[0]]
    assert answer.spent.tokens == sum(result.usage.total_tokens for result in results)


async def test_a_turn_is_asked_for_at_a_low_temperature_unless_the_run_says_otherwise(services):
    """RU303."""
    await worked(services, DONE)
    warm = settings_pb2.RunSettings(model="m", temperature=0.7)
    await services.client.create_run(services.project, "warm", warm)
    await worked(services, DONE, run="warm")
    asked = [
        (await services.client.get_run(services.project, run, turns_max=1)).turns[0].request.temperature
        for run in ("r", "warm")
    ]
    assert asked == pytest.approx([0.1, 0.7])


async def test_the_temperature_of_runs_that_name_none_is_a_setting(tmp_path, monkeypatch):
    """RU303."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, temperature=0.4) as services:
        await worked(services, DONE)
        (turn,) = (await services.client.get_run(services.project, "r", turns_max=1)).turns
    assert turn.request.temperature == pytest.approx(0.4)


async def test_a_loop_ends_when_all_its_commands_have(services):
    """RU139: whoever waits for the end of a task finds nothing that still runs."""
    services.script('<sh>sleep 0.4; echo over</sh><set path="known://a">x</set>' + DONE)
    queued = await services.act()
    unsettled = None
    states: dict[str, int] = {}
    async for event in services.client.watch(queued.project, queued.run, queued.cursor):
        kind = event.WhichOneof("event")
        if kind in ("message_added", "message_updated"):
            entry = getattr(event, kind).entry
            states[entry.path] = entry.state
        if kind == "run_state" and event.run_state.loop.status in LOOP_ENDED:
            unsettled = [path for path, state in states.items() if not State(state).is_settled]
            break
    assert (unsettled, len([path for path in states if path.startswith("log://turn_1/")])) == ([], 3)


# Records ------------------------------------------------------------------------------------------------------------------

ACTIONS = [
    ("<think>Hm.</think>", 200),
    ('<get path="a.txt"/>', 200),
    ('<get path="none.txt"/>', 404),
    ('<set path="known://a">x</set>', 200),
    ('<set path="a.txt">new</set>', 202),
    ('<set path="../a.txt">new</set>', 403),
    ('<rm path="known://none"/>', 404),
    ('<rm path="a.txt"/>', 202),
    ('<cp path="a.txt" to="known://a"/>', 200),
    ('<mv path="a.txt" to="b.txt"/>', 202),
    ("<sh>true</sh>", 202),
    ('<ask_user question="Which?"/>', 202),
]


@pytest.mark.parametrize(("command", "status"), ACTIONS, ids=[command for command, _ in ACTIONS])
async def test_an_action_ends_well_ends_badly_or_waits(services, command, status):
    """RU137, RU075: and it has one record, named by turn and action."""
    services.script(command + GO_ON, DONE)
    queued = await services.act(yolo=False)
    await services.until(queued, 200, 202, 422)
    records = [path for path in await paths(services, "log://turn_1/**") if "/update/" not in path]
    assert [await services.status(path) for path in records] == [status]
    assert re.fullmatch(r"log://turn_1/[a-z_]+/.+", records[0])


@pytest.mark.parametrize(
    ("command", "pattern", "status", "outcome"),
    [
        ('<get path="a.txt"/>', "get/*", 200, ""),
        ("<get/>", "get/*", 400, "invalid:400"),
        ('<set path=".git/config">x</set>', "set/*", 403, "permission:403"),
        ('<get path="none.txt"/>', "get/*", 404, "not_found:404"),
        ('<set path="a.txt"><<SEARCH\nnone\nSEARCH\n<<REPLACE\nx\nREPLACE</set>', "set/*", 409, "conflict:409"),
        (f'<set path="known://a">{"word " * 600}</set>', "set/*", 413, "too_large:413"),
        ('<get path="none.txt"/><think>Hm.</think>', "think/*", 499, "aborted:499"),
        ("<sh>exit 3</sh>", "sh/*", 500, "exit_3:500"),
    ],
)
async def test_a_status_has_its_word(services, command, pattern, status, outcome):
    """RU061; C26: `word:code`. 202 is a proposal, 102 a channel that grows, 100 a run that is queued."""
    await worked(services, command + GO_ON, DONE)
    (path,) = await paths(services, f"log://turn_1/{pattern}")
    record = await services.entry(path)
    assert (record.status, record.outcome) == (status, outcome)


async def test_what_is_under_way_has_its_status_too(services):
    """RU061."""
    services.script("<sh>sleep 0.3</sh>" + GO_ON, DONE)
    queued = await services.act()
    assert queued.state.status == 100
    await services.until(queued)
    states = {
        (event.message_added.entry.path.partition(":")[0], event.message_added.entry.status)
        for event in services.events
        if event.WhichOneof("event") == "message_added"
    }
    assert states >= {("sh", 102), ("log", 100)}


async def test_a_record_says_what_happened_and_channels_say_what_came_out(services):
    """RU080, RU083: data and records of one action are entries of two schemes, and the record is terse."""
    await worked(services, "<sh>seq 1000; exit 3</sh>" + GO_ON, DONE)
    record, channel = [
        await services.entry((await paths(services, pattern))[0]) for pattern in ("log://turn_1/sh/*", "sh://*_1")
    ]
    kinds = await schemes(services)
    assert (kinds["log"][0], kinds["sh"][0]) == ("logging", "data")
    assert channel.body == "".join(f"{n}\n" for n in range(1, 1001))
    assert (len(record.body) < 300, "3" in record.body, "\n500\n" in record.body) == (True, True, False)
    packet = (await services.entry("user://2")).body
    log = packet[packet.index("<log>") : packet.index("</log>")]
    assert ("\n500\n" in log, "\n500\n" in packet) == (False, True)


async def test_the_prompt_is_an_entry_of_the_runtimes_own_with_the_mode(services):
    """RU074: for plugins to write; a model's attempt is refused (see the surfaces)."""
    await worked(services, DONE)
    services.script(DONE)
    await services.until(await services.ask("What is it?"))
    modes = {path: (await attributes(services, path))["mode"] for path in await paths(services, "prompt://*")}
    assert modes == {"prompt://1": "act", "prompt://2": "ask"}
    assert (await schemes(services))["prompt"] == ("prompt", {Tier.PLUGIN})


@pytest.mark.parametrize(
    ("scheme", "tiers"),
    [
        ("log", {Tier.SYSTEM, Tier.PLUGIN, Tier.MODEL}),
        ("update", {Tier.PLUGIN, Tier.MODEL}),
        ("error", {Tier.PLUGIN, Tier.MODEL}),
    ],
)
async def test_what_happens_is_of_logging_schemes(services, scheme, tiers):
    """RU075-RU077: exact lists (C9)."""
    assert (await schemes(services))[scheme] == ("logging", tiers)


async def test_an_error_of_the_runtime_is_a_record_that_the_model_reads(services):
    """RU077: at `log://turn_N/error/{slug}` (C3)."""
    await worked(services, '<get path="a.txt"/>' * 120 + GO_ON, DONE)
    (error,) = await paths(services, "log://turn_1/error/*")
    packet = (await services.entry("user://2")).body
    assert (await services.entry(error)).state == entry_pb2.STATE_FAILED
    assert f'<error path="{error}"' in packet[packet.index("<log>") : packet.index("</log>")]


async def test_no_entry_carries_a_count_of_its_tokens(services):
    """RU053: they are counted where a packet is made, by its divisor."""
    await worked(services, '<set path="known://a">Some words.</set>' + GO_ON, DONE)
    fields = {field.name for field in entry_pb2.Entry.DESCRIPTOR.fields}
    assert not {name for name in fields if "token" in name}
    assert "tokens" not in await attributes(services, "known://a")
    assert 'path="known://a" status="200" tokens=' in (await services.entry("user://2")).body


async def test_an_entry_says_when_the_run_touched_it_last(services):
    """RU055: by a write, a look, a change of visibility, the making of it; what is left alone stays where it was."""
    note = '<set path="known://{}">{}</set>'
    first = "".join(note.format(name, "one") for name in ("written", "read", "hidden", "left", "source"))
    touching = (
        note.format("written", "two")
        + '<get path="known://read"/><set path="known://hidden" visibility="archived"/>'
        + '<cp path="known://source" to="known://copy"/>'
    )
    await worked(services, first + GO_ON, "<think>Hm.</think>" + GO_ON, touching + GO_ON, DONE)
    await worked(services, note.format("later", "x") + DONE, prompt="Again.")
    names = ("written", "read", "hidden", "left", "source", "copy", "later")
    found = {name: await services.entry(f"known://{name}") for name in names}
    assert {name: (entry.turn, entry.loop) for name, entry in found.items()} == {
        "written": (3, 1),
        "read": (3, 1),
        "hidden": (3, 1),
        "left": (1, 1),
        "source": (1, 1),
        "copy": (3, 1),
        "later": (5, 2),
    }


# The manifest, and the instructions ----------------------------------------------------------------------------------------


async def test_the_manifest_is_written_once_and_can_be_demoted(services):
    """RU165, RU167: a file that comes later is not in it; a listing is always fresh."""
    fresh = '<get path="**" preview/>'
    await worked(services, f'<set path="{MANIFEST}" visibility="summarized"/>' + DONE)
    before = await services.entry(MANIFEST)
    (services.files / "late.txt").write_text("late\n")
    await worked(services, fresh + DONE, prompt="Again.")
    after = await services.entry(MANIFEST)
    (listing,) = await paths(services, "log://turn_2/get/*")
    assert (before.visibility, after.body) == (entry_pb2.VISIBILITY_SUMMARIZED, before.body)
    assert [path for path in await paths(services, "log://**") if "/repo/" in path.partition("/set/")[0]] == [MANIFEST]
    assert ("late.txt" in after.body, "late.txt" in (await services.entry(listing)).body) == (False, True)


async def test_the_manifest_is_visible_at_first(services):
    """RU165."""
    await worked(services, DONE)
    manifest = await services.entry(MANIFEST)
    assert (manifest.visibility, "a.txt" in manifest.body) == (entry_pb2.VISIBILITY_VISIBLE, True)


async def test_a_run_has_one_entry_of_instructions_with_persona_and_tools(services):
    """RU196: its body is empty, loops share it."""
    persona = settings_pb2.RunSettings(model="m", persona="You are brief.")
    await services.client.create_run(services.project, "r", persona)
    await worked(services, GO_ON, DONE, no_interaction=True)
    services.script(DONE)
    await services.until(await services.ask())
    (path,) = await paths(services, "instructions://*")
    told = await attributes(services, path)
    offered = (await services.client.get_run(services.project, "r", turns_max=1)).turns[0].request.tools
    assert (path, (await services.entry(path)).body) == ("instructions://system", "")
    assert (told["persona"], told["tools"]) == ("You are brief.", list(offered))


async def test_the_documentation_of_a_tool_is_what_the_tool_brings_along(services):
    """RU198: the system message has that of every tool that is offered and of no other."""
    await worked(services, DONE, no_proposals=True)
    system = (await services.entry("system://1")).body
    offered = (await services.client.get_run(services.project, "r", turns_max=1)).turns[0].request.tools
    tools = (await services.client.discover()).tools
    documented = [tool.name for tool in tools if tool.description.strip() in system]
    assert documented == list(offered)
    assert "<!--" not in system  # the reasons beside the lines are for people (RU257)
    assert len(documented) < len(tools)


async def test_the_characters_of_a_token_are_one_setting_for_whoever_counts(tmp_path, monkeypatch):
    """RU211, RU223, RU297: the manifest, a listing, the record of a write and its gate, which looks at the body."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_TOKEN_DIVISOR", "4")
    async with running(tmp_path) as services:
        (services.files / "a.txt").write_text("x" * 40)
        fits, over = (f'<set path="known://{name}">{"x" * chars}</set>' for name, chars in (("a", 2048), ("b", 2049)))
        await worked(services, f'{fits}<get path="known://*" preview/>{GO_ON}', over + GO_ON, DONE)
        (listing,) = await paths(services, "log://turn_1/get/*")
        (written,) = await paths(services, "log://turn_1/set/*")
        (refused,) = await paths(services, "log://turn_2/set/*")
        told = [(await services.entry(path)).body for path in (MANIFEST, listing, written)]
        status = await services.status(refused)
    assert told == ["* a.txt - 10 tokens", "* known://a - 512 tokens", "known://a: 1 line, 512 tokens"]
    assert status == 413
