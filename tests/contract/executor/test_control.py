"""What clients change and tell beside giving work. Rows RU117-RU120, RU225-RU233, RU238, RU240, RU245, RU247, RU251."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from turnwright.executor.v1 import event_pb2, task_pb2
from turnwright.types.v1 import entry_pb2, model_pb2, run_pb2, settings_pb2
from turnwright.types.v1.project_pb2 import FILE_CONSTRAINT_KIND_ADD as ADD
from turnwright.types.v1.project_pb2 import FILE_CONSTRAINT_KIND_IGNORE as IGNORE
from turnwright.types.v1.project_pb2 import FILE_CONSTRAINT_KIND_READONLY as READONLY
from turnwright_values.types import SessionState

from contract.executor.proposing import Another, waiting
from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from services import token_for
from turnwright_client import Client
from turnwright_client.control import check_version
from turnwright_core import __version__
from turnwright_core.errors import (
    DeniedError,
    ExistsError,
    InvalidError,
    MissingError,
    PreconditionError,
    Reason,
    TurnwrightError,
)
from turnwright_kit.identity.caller import Kind

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'


async def worked(services, *replies, run="r", **settings):
    """A run that has taken a task to its end."""
    services.script(*replies or (DONE,))
    return await services.until(await services.act(run=run, **settings))


# Forks ----------------------------------------------------------------------------------------------------------------


async def test_a_task_can_be_given_to_a_fork_of_a_run(services) -> None:
    await worked(services, '<set path="known://a">1</set>' + DONE, DONE)
    fork = task_pb2.TaskFork(run="side")
    settings = settings_pb2.LoopSettings(model="m", yolo=True)
    first = await services.client.act(services.project, "Try.", run="r", settings=settings, fork=fork, request_id="1")
    again = await services.client.act(services.project, "Try.", run="r", settings=settings, fork=fork, request_id="1")
    loop = await services.until(first)
    run = (await services.client.get_run(services.project, "side")).run
    assert (loop.status, again.run, again.sequence) == (200, "side", first.sequence)
    assert run.forked_from == run_pb2.ForkOrigin(run="r", turn=1)
    assert (await services.entry("known://a", "side")).body == "1"
    assert (await services.client.get_run(services.project, "r")).run.turn == 1


async def test_settings_that_come_with_a_task_hold_for_its_run(services) -> None:
    """RU231."""
    services.script(DONE, DONE)
    given = settings_pb2.RunSettings(model="m", temperature=0.7, persona="You are a poet.", context_limit=20_000)
    task = {"prompt": "Do it.", "run": "new", "settings": settings_pb2.LoopSettings(model="m", yolo=True)}
    await services.until(await services.client.act(services.project, **task, run_settings=given))
    answer = await services.client.get_run(services.project, "new", turns_max=1)
    request = answer.turns[0].request
    system = (await services.entry("system://1", "new")).body
    assert (round(request.temperature, 3), request.context_length) == (0.7, 20_000)
    assert "You are a poet." in system
    # The same once more says nothing new.
    again = await services.client.act(services.project, **task, run_settings=given)
    assert (await services.until(again)).status == 200


@pytest.mark.parametrize(
    "other",
    [
        {"temperature": 0.2},
        {"persona": "You are a clerk."},
        {"context_limit": 30_000},
        {"yolo": True},
        {"calls": settings_pb2.CALL_STYLE_AUTO},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_other_settings_for_a_run_that_exists_are_refused_and_not_ignored(services, other) -> None:
    """RU231, C51."""
    await worked(services, DONE)
    before = (await services.client.get_run(services.project, "r")).run
    with pytest.raises(InvalidError, match=f"{next(iter(other))}: leave it out"):
        await services.client.act(
            services.project,
            "Do it.",
            run="r",
            settings=settings_pb2.LoopSettings(model="m"),
            run_settings=settings_pb2.RunSettings(**other),
        )
    assert (await services.client.get_run(services.project, "r")).run == before


async def test_a_fork_begins_at_the_end_of_an_earlier_turn(services) -> None:
    await worked(services, '<set path="known://a">1</set>' + GO_ON, '<set path="known://b">2</set>' + DONE)
    run = await services.client.fork_run(services.project, "r", new_run="early", turn=1)
    paths = [entry.path async for entry in services.client.list_entries(services.project, "early", "known://*")]
    assert (run.turn, paths) == (1, ["known://a"])
    with pytest.raises(MissingError):
        await services.client.fork_run(services.project, "r", turn=9)


# Names and settings -----------------------------------------------------------------------------------------------------


async def test_a_run_goes_on_under_another_alias(services) -> None:
    await worked(services, DONE, DONE)
    renamed = await services.client.rename_run(services.project, "r", "better")
    loop = await services.until(await services.act(run="better"))
    assert (renamed.run, loop.status, loop.sequence) == ("better", 200, 2)
    with pytest.raises(MissingError):
        await services.client.get_run(services.project, "r")


async def test_a_run_that_waits_cannot_be_renamed_or_removed(services) -> None:
    services.script('<set path="a.txt">new</set>' + DONE)
    await services.until(await services.act(yolo=False), 202)
    with pytest.raises(PreconditionError):
        await services.client.rename_run(services.project, "r", "better")
    with pytest.raises(PreconditionError):
        await services.client.delete_run(services.project, "r")


async def test_a_removed_run_is_gone_and_its_alias_is_free(services) -> None:
    await worked(services, DONE, DONE)
    await services.client.delete_run(services.project, "r")
    loop = await services.until(await services.act())
    assert (loop.sequence, loop.status) == (1, 200)


async def test_settings_of_a_run_hold_from_its_next_loop_on(services) -> None:
    await worked(services, DONE, DONE)
    patch = settings_pb2.RunSettingsPatch(temperature=0.7, context_limit=4096)
    run = await services.client.configure_run(services.project, "r", patch)
    await services.until(await services.act())
    turn = (await services.client.get_run(services.project, "r", turns_max=1)).turns[0]
    assert run.settings == settings_pb2.RunSettings(model="m", temperature=0.7, context_limit=4096)
    assert (turn.request.temperature, turn.request.context_length) == (0.7, 4096)


async def test_a_run_begins_with_the_settings_it_was_started_with(services) -> None:
    wanted = settings_pb2.RunSettings(model="m", temperature=0.3, persona="Be brief.", context_limit=32_000, yolo=True)
    services.script('<set path="a.txt">new</set>' + DONE)
    started = await services.client.create_run(services.project, "r", wanted, request_id="1")
    again = await services.client.create_run(services.project, "r", wanted, request_id="1")
    loop = await services.until(await services.act(yolo=False))
    assert (started.settings, started.status, again) == (wanted, 100, started)
    # What the run grants is not what the task asked for.
    assert (loop.settings.yolo, (services.files / "a.txt").read_text()) == (False, "new\n")
    patch = settings_pb2.RunSettingsPatch(persona="Be long.")
    with pytest.raises(PreconditionError):
        await services.client.configure_run(services.project, "r", patch)


# Messages ---------------------------------------------------------------------------------------------------------------


async def test_an_injected_message_is_read_in_the_next_turn(services) -> None:
    services.script('<set path="a.txt">new</set>' + GO_ON, DONE)
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    told = await services.client.inject_message(services.project, "r", "Mind the gap.", request_id="1")
    again = await services.client.inject_message(services.project, "r", "Mind the gap.", request_id="1")
    await services.client.resolve(services.project, "r", "log://turn_1/set/a.txt", accept=True)
    await services.until(queued)
    packet = (await services.entry("user://2")).body
    assert (told.run.status, told.path, again.path) == (202, "log://turn_0/inject/message", told.path)
    assert packet.count("Mind the gap.") == 1
    assert "Mind the gap." not in (await services.entry("user://1")).body


async def test_a_message_to_an_idle_run_waits_for_its_next_task(services) -> None:
    await worked(services, DONE, DONE)
    first = await services.client.inject_message(services.project, "r", "One.")
    second = await services.client.inject_message(services.project, "r", "Two.")
    await services.until(await services.act())
    packet = (await services.entry("user://2")).body
    assert (first.run.status, first.path, second.path) == (
        200,
        "log://turn_1/inject/message",
        "log://turn_1/inject/message+2",
    )
    assert packet.index("One.") < packet.index("Two.")


@pytest.mark.parametrize(("message", "field"), [("", "message"), (" \n", "message"), ("x" * 65537, "message")])
async def test_a_message_has_a_size(services, message, field) -> None:
    await worked(services)
    with pytest.raises(InvalidError) as caught:
        await services.client.inject_message(services.project, "r", message)
    assert caught.value.metadata["field"] == field


async def test_notices_and_renderings_reach_the_watchers_and_are_not_stored(services) -> None:
    await worked(services)
    notice = event_pb2.Notice(text="Tests are green.", source="ci")
    rendering = event_pb2.Rendering(id="build", text="50 %", append=True)
    seen = []
    async with contextlib.aclosing(services.client.watch(services.project, "r")) as events:
        async for event in events:
            kind = event.WhichOneof("event")
            if kind == "snapshot":
                await services.client.notify(services.project, "r", notice)
                await services.client.notify(services.project, "r", rendering)
            elif kind in ("notice", "rendering"):
                seen.append(getattr(event, kind))
                if len(seen) == 2:
                    break
    notice.level = event_pb2.NOTICE_LEVEL_INFO
    assert seen == [notice, rendering]
    with pytest.raises(InvalidError):
        await services.client.notify(services.project, "r", event_pb2.Notice(text="x", level=77))


async def test_a_notice_says_who_has_sent_it_whatever_that_one_says(services) -> None:
    await worked(services)
    async with (
        Client.connect(services.addresses["executor"], token_for("mallory")) as mallory,
        contextlib.aclosing(services.client.watch(services.project, "r")) as events,
    ):
        async for event in events:
            if event.HasField("snapshot"):
                await mallory.notify(services.project, "r", event_pb2.Notice(text="All is well.", source="system"))
            elif event.HasField("notice"):
                assert (event.notice.text, event.notice.source) == ("All is well.", "mallory")
                return
    raise AssertionError("the watch ended")


# Tools for clients ------------------------------------------------------------------------------------------------------


async def test_a_client_writes_reads_and_removes_entries_through_the_tools(services) -> None:
    await worked(services)
    call = services.client.call_tool
    written = await call(services.project, "r", "set", {"path": "known://fact"}, "Water is wet.")
    copied = await call(services.project, "r", "cp", {"path": "known://fact", "to": "known://copy"})
    moved = await call(services.project, "r", "mv", {"path": "known://copy", "to": "known://moved"})
    read = await call(services.project, "r", "get", {"path": "known://fact"})
    removed = await call(services.project, "r", "rm", {"path": "known://moved"})
    paths = [entry.path async for entry in services.client.list_entries(services.project, "r", "known://*")]
    assert [one.status for one in (written, copied, moved, read, removed)] == [200] * 5
    assert (paths, (await services.entry("known://fact")).body) == (["known://fact"], "Water is wet.")


async def test_a_client_changes_a_file_without_anybodys_decision(services) -> None:
    await worked(services, DONE, DONE)
    record = await services.client.call_tool(services.project, "r", "set", {"path": "a.txt"}, "by hand\n")
    assert (record.status, (services.files / "a.txt").read_text()) == (200, "by hand\n")
    await services.until(await services.act())
    assert record.path in (await services.entry("user://2")).body


@pytest.mark.parametrize(
    ("tool", "attributes", "body"),
    [
        ("think", {}, "Hm."),
        ("get", {"path": "a.txt"}, ""),
        ("set", {"path": "known://a"}, "x"),
        ("cp", {"path": "a.txt", "to": "known://copy"}, ""),
        ("mv", {"path": "a.txt", "to": "b.txt"}, ""),
        ("rm", {"path": "a.txt"}, ""),
        ("sh", {"command": "true"}, ""),
        ("update", {"status": "102"}, "On it."),
        ("ask_user", {"question": "Which one?"}, ""),
    ],
)
async def test_every_tool_of_the_model_is_there_for_clients(services, tool, attributes, body) -> None:
    await worked(services)
    record = await services.client.call_tool(services.project, "r", tool, attributes, body)
    assert (record.status, record.path.split("/")[3]) == (200, tool)


async def test_a_file_is_promoted_and_kept_by_a_constraint(services) -> None:
    await worked(services, DONE, DONE)
    await services.client.call_tool(services.project, "r", "get", {"path": "a.txt"})
    await services.client.set_file_constraints(services.project, {"a.txt": READONLY})
    shown = await services.entry("a.txt")
    services.script(DONE, '<set path="a.txt">new</set>' + DONE)
    await services.until(await services.act())
    assert shown.visibility == entry_pb2.VISIBILITY_VISIBLE
    assert (services.files / "a.txt").read_text() == "old\n"


async def test_what_a_tool_refuses_is_reported_by_its_record(services) -> None:
    await worked(services)
    missing = await services.client.call_tool(services.project, "r", "rm", {"path": "known://none"})
    confined = await services.client.call_tool(services.project, "r", "set", {"path": "../out.txt"}, "x")
    aimless = await services.client.call_tool(services.project, "r", "get", {})
    assert [one.outcome.partition(":")[2] for one in (missing, confined, aimless)] == ["404", "403", "400"]
    assert not (services.root / "out.txt").exists()


async def test_a_repeated_call_is_carried_out_once(services) -> None:
    await worked(services)
    call = services.client.call_tool
    command = {"command": "echo x >> count.txt"}
    first = await call(services.project, "r", "sh", command, request_id="1")
    again = await call(services.project, "r", "sh", command, request_id="1")
    assert (first, (services.files / "count.txt").read_text()) == (again, "x\n")
    with pytest.raises(ExistsError):
        await call(services.project, "r", "sh", {"command": "true"}, request_id="1")


async def test_a_call_that_is_repeated_while_it_is_carried_out_waits_for_it(services) -> None:
    await worked(services)
    command = {"command": "sleep 0.5; echo x >> count.txt"}
    records = await asyncio.gather(
        *(services.client.call_tool(services.project, "r", "sh", command, request_id="1") for _ in range(3))
    )
    assert {record.path: record.status for record in records} == {records[0].path: 200}
    assert (services.files / "count.txt").read_text() == "x\n"


async def test_a_client_calls_tools_while_the_loop_of_the_run_works(services) -> None:
    services.script('<set path="a.txt">new</set>' + DONE)
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    record = await services.client.call_tool(services.project, "r", "set", {"path": "known://note"}, "meanwhile")
    await services.client.resolve(services.project, "r", "log://turn_1/set/a.txt", accept=True)
    loop = await services.until(queued)
    assert (record.status, loop.status) == (200, 200)


async def test_a_call_needs_a_tool_and_a_run(services) -> None:
    await worked(services)
    with pytest.raises(InvalidError):
        await services.client.call_tool(services.project, "r", "fly", {})
    with pytest.raises(InvalidError):
        await services.client.call_tool(services.project, "r", "set", {"path": "known://a"}, "x" * 524289)
    with pytest.raises(MissingError):
        await services.client.call_tool(services.project, "none", "get", {"path": "a.txt"})


# Lists --------------------------------------------------------------------------------------------------------------------


async def test_entries_are_listed_by_patterns_of_the_latest_run(services) -> None:
    await worked(services, '<set path="known://b">two</set><set path="known://a">one</set>' + DONE)
    by_path = [entry async for entry in services.client.list_entries(services.project, pattern="known://*")]
    by_body = [entry.path async for entry in services.client.list_entries(services.project, "r", "known://*", "tw")]
    assert [(entry.path, entry.body) for entry in by_path] == [("known://a", "one"), ("known://b", "two")]
    assert by_body == ["known://b"]


async def test_models_come_and_go(services) -> None:
    added = await services.client.set_model(model_pb2.Model(alias="n", vendor_model="scripted/n", context_length=4096))
    assert added in await services.client.list_models()
    await services.client.delete_model("n")
    assert added not in await services.client.list_models()
    with pytest.raises(MissingError):
        await services.client.delete_model("n")


@pytest.mark.parametrize(
    ("vendor_model", "words"),
    [("nobody/x", "no vendor nobody; there are"), ("Openai/x", r"did you mean openai\?.* there are")],
)
async def test_a_model_of_a_vendor_that_there_is_not_is_refused_when_it_is_named(services, vendor_model, words) -> None:
    before = await services.client.list_models()
    with pytest.raises(InvalidError, match=words) as refused:
        await services.client.set_model(model_pb2.Model(alias="n", vendor_model=vendor_model))
    assert refused.value.metadata["field"] == "model.vendor_model"
    assert await services.client.list_models() == before


async def test_a_model_is_named_without_an_alias_wherever_one_is_named(services) -> None:
    services.script(DONE, DONE)
    loop = await services.until(await services.act(model="scripted/m"))
    run = await services.client.create_run(services.project, "s", settings_pb2.RunSettings(model="scripted/m"))
    patched = await services.client.configure_run(
        services.project, "s", settings_pb2.RunSettingsPatch(model="scripted/other")
    )
    assert (loop.settings.model, run.settings.model, patched.settings.model, loop.status) == (
        "scripted/m",
        "scripted/m",
        "scripted/other",
        200,
    )


async def test_an_unknown_vendor_is_refused_wherever_a_model_is_named(services) -> None:
    client, project = services.client, services.project
    unknown = "scriptd/m"
    await client.create_run(project, "s", settings_pb2.RunSettings(model="m"))
    for refused in (
        services.act(run="t", model=unknown),
        services.ask(run="t", model=unknown),
        client.create_run(project, "t", settings_pb2.RunSettings(model=unknown)),
        client.configure_run(project, "s", settings_pb2.RunSettingsPatch(model=unknown)),
    ):
        with pytest.raises(InvalidError, match=r"did you mean scripted\?") as error:
            await refused
        assert error.value.metadata["field"] == "settings.model"
    assert [run.run async for run in client.list_runs(project)] == ["s"]


async def test_a_mistyped_alias_is_reported_with_the_one_that_is_near(services) -> None:
    await services.client.set_model(model_pb2.Model(alias="coder", vendor_model="scripted/m"))
    with pytest.raises(MissingError, match=r"'codr' \(did you mean coder\?\)"):
        await services.act(model="codr")


async def test_constraints_on_files_are_set_and_taken_away(services) -> None:
    client, project = services.client, services.project
    await client.set_file_constraints(project, {"a.txt": READONLY, "*.log": IGNORE}, request_id="1")
    listed = [(one.pattern, one.kind) for one in await client.list_file_constraints(project)]
    await client.set_file_constraints(project, {"b.txt": ADD}, remove=["*.log"])
    after = [(one.pattern, one.kind) for one in await client.list_file_constraints(project)]
    assert (listed, after) == (
        [("*.log", IGNORE), ("a.txt", READONLY)],
        [("a.txt", READONLY), ("b.txt", ADD)],
    )


async def test_get_run_shows_history_open_questions_and_telemetry(services) -> None:
    await worked(services, '<set path="unknown://why">Why?</set>' + GO_ON, DONE)
    answer = await services.client.get_run(services.project, "r", turns_max=5, history_max=100)
    told = [
        (entry.path, entry.status, entry.body, entry.turn, json.loads(entry.attributes_json).get("tool"))
        for entry in answer.history
        if entry.path.startswith(("prompt", "log://turn_1", "log://turn_2"))
    ]
    assert (answer.run.run, answer.run.turn, answer.run.status, answer.run.summary) == ("r", 2, 200, "Done.")
    assert told == [
        ("prompt://1", 200, "Do it.", 1, None),
        ("log://turn_1/set/unknown%3A/why", 200, "unknown://why: 1 line, 2 tokens", 1, "set"),
        ("log://turn_1/update/2", 200, "Going on.", 1, "update"),
        ("log://turn_2/update/1", 200, "Done.", 2, "update"),
    ]
    assert [(entry.path, entry.body) for entry in answer.unknowns] == [("unknown://why", "Why?")]
    assert answer.telemetry == answer.turns[0].result
    assert (answer.spent.turns, answer.spent.tokens) == (
        2,
        sum(turn.result.usage.total_tokens for turn in answer.turns),
    )
    short = await services.client.get_run(services.project, "r", history_max=1)
    assert list(short.history) == [answer.history[-1]]


async def test_get_run_shows_no_telemetry_and_the_proposals_while_a_turn_is_open(services) -> None:
    services.script('<set path="a.txt">new</set>' + DONE)
    await services.until(await services.act(yolo=False), 202)
    answer = await services.client.get_run(services.project, "r")
    assert (answer.HasField("telemetry"), list(answer.proposals)) == (False, ["log://turn_1/set/a.txt"])
    assert (answer.spent.turns, list(answer.history)) == (1, [])


async def test_get_run_shows_the_proposals_of_a_loop_that_its_owner_had_no_time_to_stop(services) -> None:
    # RS08: what waits decides, and not the status of the loop
    await waiting(services, '<set path="a.txt">new</set>' + DONE)
    owner = Another(services)
    await owner.claim()
    await owner.run_status(102)
    answer = await services.client.get_run(services.project, "r")
    assert (answer.run.status, answer.run.state) == (102, SessionState.PAUSED)
    assert list(answer.proposals) == ["log://turn_1/set/a.txt"]
    await owner.peer.close()


# The catalogue ----------------------------------------------------------------------------------------------------------


async def test_discover_tells_every_method_notification_and_tool(services) -> None:
    found = await services.client.discover()
    methods = {method.name.rpartition("/")[2]: method for method in found.methods}
    assert found.version == __version__
    assert {"Ask", "Act", "ResolveProposal", "AbortRun", "CreateRun"} <= methods.keys()
    assert {"ListRuns", "ListModels", "ListEntries"} <= methods.keys()
    assert {"InitProject", "ForkRun", "WatchRuns", "CallTool"} <= methods.keys()
    assert (methods["WatchRun"].streams, list(methods["AbortRun"].fields)) == (
        True,
        ["project", "run", "loop", "request_id"],
    )
    assert {"WatchRun.run_progress", "WatchRun.notice", "WatchRuns.hello"} <= set(found.notifications)
    assert all(tool.description for tool in found.tools)


@pytest.mark.parametrize(("version", "refused"), [("1.0.0", False), ("1.9.3", False), ("2.0.0", True), ("0.9.0", True)])
async def test_a_client_refuses_an_executor_of_another_major_version(version, refused) -> None:
    with pytest.raises(PreconditionError) if refused else contextlib.nullcontext():
        check_version(version, own="1.4.2")


async def test_a_project_is_registered_under_the_wanted_name(services) -> None:
    other = services.root / "other"
    other.mkdir()
    before = await services.client.find_project(str(other))
    made = await services.client.init_project(str(other), "wanted")
    again = await services.client.init_project(str(other))
    assert (before, made.name, again) == (None, "wanted", made)
    assert await services.client.find_project(str(other)) == made


async def test_a_model_cannot_steer(services) -> None:
    await worked(services)
    token = token_for("m", Kind.MODEL)
    async with Client.connect(services.addresses["executor"], token) as model:
        for call in (
            model.inject_message(services.project, "r", "x"),
            model.fork_run(services.project, "r"),
            model.call_tool(services.project, "r", "sh", {"command": "true"}),
            anext(model.watch_runs(services.project)),
        ):
            with pytest.raises(TurnwrightError) as caught:
                await call
            assert caught.value.reason is Reason.TIER_FORBIDDEN
            assert isinstance(caught.value, DeniedError)


async def test_the_state_of_an_entry_is_part_of_a_record(services) -> None:
    await worked(services)
    record = await services.client.call_tool(services.project, "r", "set", {"path": "known://a"}, "x")
    assert (record.state, record.writer) == (entry_pb2.STATE_RESOLVED, entry_pb2.TIER_SYSTEM)


async def test_the_path_of_a_projects_settings_is_kept_until_another_one_is_named(services) -> None:
    """RU226: init has name, root and the path of a configuration."""
    other = services.root / "configured"
    other.mkdir()
    init = services.client.init_project
    made = [await init(str(other), "configured", path) for path in ("conf/a.toml", None, "b.toml", "")]
    assert [(one.name, one.config_path) for one in made] == [
        ("configured", path) for path in ("conf/a.toml", "conf/a.toml", "b.toml", "")
    ]
    assert (made[0].root, (await init(str(services.files))).config_path) == (str(other), "")
