"""A run as one document. Rows RT01, RC08, OM38."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from sqlalchemy import update
from turnwright.documents.v1 import document_service_pb2 as documents
from turnwright.types.v1 import command_record_pb2, cursor_pb2, settings_pb2, view_pb2
from turnwright.types.v1 import session_command_pb2 as commands
from turnwright.types.v1.command_record_pb2 import CommandRecord
from turnwright_values.types import Tier

from cases import NEEDS_SHARED, load_shared
from contract.store.counting import connected, row_counts
from contract.store.harness import (
    ARCHIVED,
    CANCELLED,
    FAILED,
    PROPOSED,
    RECORDED,
    RESOLVED,
    STREAMING,
    Client,
    Run,
    append,
    as_tier,
    new_project,
    remove,
    set_,
    start_store,
    working_run,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import IMAGES_MAX, WRITES_MAX
from turnwright_core.titles import title_in
from turnwright_store.app import import_run
from turnwright_store.domain.limits import WriteLimits
from turnwright_store.sql.tables import runs

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES


async def text_of(run: Run, **fields: Any) -> bytes:
    parts = [part async for part in run.client.stream("ExportRun", **run.address, **fields)]
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert max(len(part.data) for part in parts) <= 512 * 1024
    return b"".join(part.data for part in parts)


def parsed(text: bytes) -> documents.RunDocument:
    """The document, which must be JSON that the contract describes."""
    return ParseDict(json.loads(text), documents.RunDocument())


async def exported(run: Run, **fields: Any) -> documents.RunDocument:
    return parsed(await text_of(run, **fields))


async def imported(client: Client, project: str, text: bytes, *, part: int = 100_000, **fields: Any) -> Any:
    async def parts() -> AsyncIterator[documents.ImportRunRequest]:
        yield documents.ImportRunRequest(project=project, **fields)
        for begin in range(0, len(text), part):
            yield documents.ImportRunRequest(data=text[begin : begin + part])

    return await client.peer.upload(client.rpc("ImportRun"), parts(), 60)


def without_ids(document: documents.RunDocument) -> documents.RunDocument:
    copy = documents.RunDocument()
    copy.CopyFrom(document)
    copy.run.project = copy.run.run = ""
    copy.run.ClearField("forked_from")
    return copy


def lines(document: documents.RunDocument) -> list[str]:
    """The document for a comparison that says what differs."""
    return str(document).splitlines()


async def turn(run: Run, *writes: Any, **result: Any) -> int:
    number = (await run.begin()).next.number
    await run.end(number, *writes, **result)
    return number


async def busy_run(client: Client, project: str) -> Run:
    """A run at rest that has seen a file change, a stream grow, a plan, an entry removed and one brought back."""
    run = await working_run(client, project, "r1")
    await run.write(set_("src/a.py", "one\n"), set_("known://fact", "It is so."), set_("known://gone", "Wrong."))
    await turn(run, set_("assistant://1", "Hello."), packet_digest="a" * 64)
    await run.write(set_("sh://turn_1/out", "1\n", state=STREAMING))
    for text in ("2\n", "3\n"):
        await run.write(append("sh://turn_1/out", text))
    await run.write(set_("src/a.py", "two\n"), remove("known://gone"), set_("known://fact", visibility=ARCHIVED))
    await turn(run, set_("assistant://2", "Zwei \u00e4\U0001f600."), packet_digest="b" * 64)
    await client.call("SetPlan", **run.address, plan={"body": "Do it."})
    await client.call("UpdatePlan", **run.address, delta="And that.")
    await run.write(set_("sh://turn_1/out", state=RESOLVED), set_("known://gone", "Right."))
    await run.end(0, loop=(200, "update", "Done."))
    return run


def history(document: documents.RunDocument) -> dict[str, list[tuple[int, int, str]]]:
    """By path, what was seen from which revision to which, the latest first; bodies where they stand."""
    found: dict[str, list[tuple[int, int, str]]] = {}
    bodies: dict[tuple[str, int], str] = {}
    for one in document.entries:
        entry = one.entry
        if not one.content_revision:
            bodies[entry.path, entry.revision] = entry.body
        body = bodies[entry.path, one.content_revision or entry.revision].encode()[: entry.body_size_bytes].decode()
        found.setdefault(entry.path, []).append((entry.revision, one.end_revision, body))
    return found


async def test_a_document_has_all_that_a_run_has_seen(client, project) -> None:
    run = await busy_run(client, project)
    document = await exported(run)
    assert (document.schema_version, document.complete, document.run.run) == (1, True, "r1")
    assert [(loop.sequence, loop.status, loop.prompt) for loop in document.loops] == [(1, 200, "do it")]
    assert [(one.number, one.request.model, one.result.packet_digest) for one in document.turns] == [
        (2, "fast", "b" * 64),
        (1, "fast", "a" * 64),
    ]
    view = await run.view()
    seen = history(document)
    assert {path: ones[0][2] for path, ones in seen.items() if not ones[0][1]} == view.bodies
    assert [body for *_, body in seen["src/a.py"]] == ["two\n", "one\n"]
    assert [body for *_, body in seen["known://gone"]] == ["Right.", "Wrong."]
    assert [body for *_, body in seen["sh://turn_1/out"]] == ["1\n2\n3\n", "1\n2\n3\n", "1\n2\n", "1\n"]
    assert sum(bool(one.entry.body) for one in document.entries if one.entry.path == "sh://turn_1/out") == 1
    for ones in seen.values():
        assert all(0 < end <= later for (later, *_), (_, end, _) in pairwise(ones))
    listed = await client.call("ListMessages", **run.address)
    assert list(document.messages) == list(listed.messages)
    assert list(document.plans) == list((await client.call("ListPlans", **run.address)).plans)


async def test_a_document_shows_one_moment_though_the_run_goes_on(client, project) -> None:
    run = await working_run(client, project, "r1")
    # The last of them are read long after the first part was sent.
    bodies = {f"known://{index:03}": "x" * (300_000 if index < 20 else 1) for index in range(520)}
    number = (await run.begin(*(set_(*one) for one in bodies.items()))).next.number
    before = await run.view()
    parts = client.stream("ExportRun", **run.address)
    first = await anext(parts)
    await run.end(number, *(set_(path, "y") for path in bodies), loop=(200, "text", "Done."))
    data = first.data + b"".join([part.data async for part in parts])
    document = ParseDict(json.loads(data), documents.RunDocument())
    assert {path: ones[0][2] for path, ones in history(document).items()} == before.bodies
    assert [(one.number, one.HasField("result")) for one in document.turns] == [(number, False)]
    assert [(loop.status, loop.reason, loop.HasField("end_time")) for loop in document.loops] == [(102, "", False)]


async def test_the_document_of_a_fork_has_what_it_inherited(client, project) -> None:
    run = await busy_run(client, project)
    forked = await client.call("ForkRun", **run.address, new_run="child", turn=1)
    child = Run(client, project, forked.run.run)
    document = await exported(child)
    assert [(one.number, one.revision, one.result.packet_digest) for one in document.turns] == [(1, 0, "a" * 64)]
    assert document.run.forked_from.run == "r1"
    assert {path: ones[0][2] for path, ones in history(document).items()} == (await child.view()).bodies


async def test_files_are_left_out_on_request(client, project) -> None:
    run = await busy_run(client, project)
    paths = {one.entry.path for one in (await exported(run)).entries}
    left = {one.entry.path for one in (await exported(run, without_files=True)).entries}
    assert paths - left == {"src/a.py"}


async def test_a_run_that_is_deleted_meanwhile_has_no_document(client) -> None:
    project = await new_project(client)
    run = await working_run(client, project, "r1")
    await run.write(*(set_(f"known://{index}", "x" * 300_000) for index in range(20)))
    await run.end(0, loop=(200, "text", "Done."))
    parts = client.stream("ExportRun", **run.address)
    await anext(parts)
    await client.call("DeleteRun", **run.address)
    with pytest.raises(TurnwrightError) as caught:
        _ = [part async for part in parts]
    assert caught.value.reason is Reason.RUN_NOT_FOUND


async def test_what_was_exported_comes_in_as_it_was_and_goes_on(client, project) -> None:
    run = await busy_run(client, project)
    text = await text_of(run)
    for part in (100_000, 7):
        answer = await imported(client, project, text, part=part)
        copy = Run(client, project, answer.run.run)
        assert (list(answer.problems), answer.skipped, copy.alias) == ([], 0, "r1-2" if part > 7 else "r1-3")
        assert lines(without_ids(await exported(copy))) == lines(without_ids(parsed(text)))
        for rpc in ("ListMessages", "ListPlans", "ListLoops", "ListTurns"):
            wanted, found = [await client.call(rpc, **one.address) for one in (run, copy)]
            for loop in wanted.loops if rpc == "ListLoops" else ():
                loop.by = ""  # here nobody asked for it
            assert found == wanted
        assert (await copy.view()).bodies == (await run.view()).bodies
        for number in (1, 2):
            wanted, found = [await one.view(at=cursor_pb2.Moment(turn=number)) for one in (run, copy)]
            assert found.bodies == wanted.bodies
        wanted, found = [await one.view(filter=view_pb2.VIEW_FILTER_TIMELINE) for one in (run, copy)]
        assert found.paths == wanted.paths
    await copy.enqueue("go on")
    await copy.claim()
    assert await turn(copy, set_("src/a.py", "three\n"), set_("sh://turn_1/out", "4\n")) == 3
    assert (await copy.entry("src/a.py")).body == "three\n"
    assert (await run.entry("sh://turn_1/out")).body == "1\n2\n3\n"


async def test_a_run_with_a_place_of_its_own_comes_in_with_another(client, project) -> None:
    """In the directory of the project it would be what nobody has asked for."""
    settings = settings_pb2.RunSettings(model="fast", place=settings_pb2.PLACE_WORKTREE)
    made = (await client.call("CreateRun", project=project, run="r1", settings=settings)).run
    copy = (await imported(client, project, await text_of(Run(client, project, "r1")))).run
    assert copy.settings.place == settings_pb2.PLACE_WORKTREE
    assert copy.place.branch.startswith("turnwright/r1-2-")
    found = await client.call("FindPlaces", names=[copy.place.name, made.place.name, "other"])
    assert sorted(found.names) == sorted([copy.place.name, made.place.name])


async def test_a_fork_comes_in_whole(client, project) -> None:
    run = await busy_run(client, project)
    child = Run(client, project, (await client.call("ForkRun", **run.address, new_run="child", turn=1)).run.run)
    await child.enqueue()
    await child.claim()
    await turn(child, set_("known://fact", "Not so."))
    await child.end(0, loop=(200, "update", "Done."))
    text = await text_of(child)
    other = await new_project(client, "other")
    copy = Run(client, other, (await imported(client, other, text)).run.run)
    assert without_ids(await exported(copy)) == without_ids(parsed(text))
    wanted, found = [(await client.call("ListMessages", **one.address)).messages for one in (child, copy)]
    assert list(found) == list(wanted)


def changed(text: bytes, **members: Any) -> bytes:
    """The document with other members; a function changes one that is there."""
    document = json.loads(text)
    for name, value in members.items():
        document[name] = value(document.get(name)) if callable(value) else value
    return json.dumps(document).encode()


def other(name: str, **fields: Any) -> Any:
    """The first element of the path has other fields."""

    def change(found: list[Any]) -> list[Any]:
        (at, *_) = [index for index, one in enumerate(found) if one["entry"]["path"] == name]
        entry = {**found[at]["entry"], **{key: value for key, value in fields.items() if key not in OUTER}}
        found[at] = {**found[at], "entry": entry, **{key: fields[key] for key in OUTER if key in fields}}
        return found

    return change


def calibrated(turn: dict[str, Any], rate: float) -> dict[str, Any]:
    return {**turn, "result": {**turn["result"], "calibration": rate}}


def record(stage: str) -> CommandRecord:
    """The record of a command with an outside effect that has come so far."""
    one = CommandRecord(tool="sh", ordinal=0, effect_class=command_record_pb2.EFFECT_CLASS_OUTSIDE)
    getattr(one, stage).SetInParent()
    return one


OUTER = ("end_revision", "content_revision", "appended_bytes")


@pytest.mark.parametrize(
    ("change", "place", "problem"),
    [
        ({"entries": other("known://fact", path="known://f\x00act")}, "entries[", "control characters"),
        ({"entries": other("known://fact", path="a" * 3000)}, "entries[", "characters; the limit is 2048"),
        ({"entries": other("known://fact", path="assistant://1")}, "entries[", "its path has come before"),
        ({"entries": other("known://fact", body="Planted.")}, "entries[", "its sizes say something else"),
        ({"entries": other("known://fact", body="It is no.")}, "entries[", "the one that its hash is of"),
        ({"entries": other("known://fact", attributes_json="[]")}, "entries[", "must be one JSON object"),
        ({"entries": other("known://fact", state="STATE_NEW")}, "entries[", "unknown to this version"),
        ({"entries": other("known://fact", visibility=17)}, "entries[", "not a valid Entry"),
        (
            {"entries": other("known://fact", writer="TIER_MODEL", record={"tool": "sh"})},
            "entries[",
            "only the runtime",
        ),
        ({"entries": other("known://fact", path="image://loop_1/1")}, "entries[", "not an image that models accept"),
        ({"entries": other("known://fact", outcome="odd")}, "entries[", "neither failed nor been cancelled"),
        ({"entries": other("known://fact", position="-1")}, "entries[", "its position is -1"),
        ({"entries": other("known://fact", revision="99999999999")}, "entries[", "the second must be higher"),
        ({"entries": other("known://fact", content_revision="1")}, "entries[", "not at revision 1"),
        ({"entries": other("sh://turn_1/out", appended_bytes="9")}, "entries[", "its sizes say something else"),
        ({"entries": lambda found: [*found, 7]}, "entries[", "not a valid EntryInterval"),
        ({"entries": lambda found: [*found, [[[[{"a": [1]}]]]]]}, "entries[", "not a valid EntryInterval"),
        ({"turns": lambda found: [*found, found[0]]}, "turns[2]", "the latest must come first"),
        ({"turns": lambda found: [{**found[0], "number": 0}, found[1]]}, "turns[0]", "its number"),
        ({"turns": lambda found: [calibrated(found[0], -5), found[1]]}, "turns[0]", "its calibration"),
        ({"turns": lambda found: [calibrated(found[0], 1e12), found[1]]}, "turns[0]", "its calibration"),
        ({"loops": lambda found: [*found, {"sequence": 9}]}, "loops[1]", "its mode"),
    ],
)
async def test_what_is_malformed_is_left_out_and_named(client, project, change, place, problem) -> None:
    run = await busy_run(client, project)
    text = await text_of(run)
    answer = await imported(client, project, changed(text, **change))
    assert answer.skipped == len(answer.problems) <= 4
    assert any(place in one.place and problem in one.problem for one in answer.problems), answer.problems
    copy = Run(client, project, answer.run.run)
    assert (await copy.view()).bodies.items() >= {("src/a.py", "two\n"), ("assistant://1", "Hello.")}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "cut off"),
        (b"[]", "not a JSON object"),
        (b'{"schema_version": 1', "cut off"),
        (b'{"schema_version": 2}', "reads 1 to 1"),
        (b'{"schema_version": "x"}', "not a whole number"),
        (b'{"run": {"run": "r"}, "complete": true}', "no schema_version"),
        (b'{"schema_version": 1, "complete": true}', "no run"),
        (b'{"schema_version": 1, "run": {"run": "r"}}', "where it was exported"),
        (b'{"schema_version": 1, "run": {"run": "../r"}, "complete": true}', "must match"),
        (b'{"schema_version": 1, "run": {}, "complete": true}', "must match"),
        (b'{"schema_version": 1, "run": {"run": "r"}, "complete": true} x', "follows its end"),
        (b'{"schema_version": 1 "run": 2}', "cannot be imported"),
        (b'{"schema_version": 1]}', "do not match"),
    ],
)
async def test_what_is_no_document_makes_no_run(client, project, text, problem) -> None:
    with pytest.raises(TurnwrightError, match=problem) as caught:
        await imported(client, project, text)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert not (await client.call("ListRuns", project=project)).runs


async def test_the_identity_of_a_document_is_checked(client, project) -> None:
    run = await busy_run(client, project)
    text = await text_of(run)
    with pytest.raises(TurnwrightError, match="it is of r1, not of r2"):
        await imported(client, project, text, document_id="r2")
    with pytest.raises(TurnwrightError) as caught:
        await imported(client, project, text, run="r1")
    assert caught.value.reason is Reason.RUN_EXISTS
    assert (await imported(client, project, text, run="r3", document_id="r1")).run.run == "r3"
    assert [one.run for one in (await client.call("ListRuns", project=project)).runs] == ["r3", "r1"]


async def test_a_repeated_import_makes_one_run(client, project) -> None:
    text = await text_of(await busy_run(client, project))
    answers = [await imported(client, project, text, request_id="once") for _ in range(2)]
    assert answers[0] == answers[1]
    assert len((await client.call("ListRuns", project=project)).runs) == 2


async def test_grants_and_what_waits_stay_where_they_are(client, project) -> None:
    run = await working_run(client, project, "r1")
    await client.call("ConfigureRun", **run.address, patch={"yolo": True})
    await client.call("SetRule", **run.address, rule={"verdict": 1, "tool": "sh"})
    await run.enqueue("later", yolo=True)
    number = (await run.begin()).next.number
    await run.write(
        set_(
            "log://turn_1/sh/a",
            "",
            state=RECORDED,
            record=record("dispatched").SerializeToString(),
            writer=Tier.SYSTEM,
            turn=number,
        ),
        set_(
            "log://turn_1/sh/b",
            "",
            state=PROPOSED,
            record=record("proposed").SerializeToString(),
            writer=Tier.SYSTEM,
            turn=number,
        ),
        set_("draft://run", "half a", writer=Tier.SYSTEM),
    )
    text = await text_of(run)
    assert b"half a" not in text
    text = changed(text, run=lambda found: {**found, "settings": {**found["settings"], "yolo": True}})
    answer = await imported(client, project, text, run="copy")
    copy = Run(client, project, "copy")
    assert (answer.run.status, answer.run.settings.yolo) == (499, False)
    assert not (await client.call("ListRules", **copy.address)).set.rules
    loops = (await client.call("ListLoops", **copy.address)).loops
    assert [(loop.status, loop.reason, loop.settings.yolo) for loop in loops] == [(499, "imported", False)] * 2
    turns = (await client.call("ListTurns", **copy.address)).turns
    assert [(one.result.status, one.result.reason) for one in turns] == [(499, "imported")]
    ended = [await copy.entry(f"log://turn_1/sh/{name}") for name in "ab"]
    assert [(one.state, one.outcome) for one in ended] == [(FAILED, "indeterminate:500"), (CANCELLED, "aborted:499")]
    assert not (await client.call("ListProposals", project=project)).proposals[1:]
    assert not (await client.call("ListWork")).runs[1:]


def kept_rows(db: str, home: Path) -> dict[str, int]:
    """Rows of each table but those that compaction takes away in its own time."""
    return {name: count for name, count in row_counts(db, home).items() if name != "chunks"}


async def test_an_import_that_breaks_off_leaves_nothing(own_db, tmp_path) -> None:
    store = await start_store(tmp_path, heartbeat_s=0.2, purge_after_s=0.1, purge_every_s=0.1)
    client = Client(store.address)
    project = await new_project(client)
    run = await busy_run(client, project)
    for index in range(12):
        await client.call("WriteEntries", **run.address, writes=[set_(f"known://{index}", "x" * 300_000)])
    text = await text_of(run)
    before = kept_rows(own_db, tmp_path)

    async def parts() -> AsyncIterator[documents.ImportRunRequest]:
        yield documents.ImportRunRequest(project=project, run="copy")
        for begin in range(0, len(text) - 1000, 500_000):
            yield documents.ImportRunRequest(data=text[begin : begin + 500_000][: len(text) - 1000 - begin])

    with pytest.raises(TurnwrightError, match="cut off"):
        await client.peer.upload(client.rpc("ImportRun"), parts(), 60)
    assert kept_rows(own_db, tmp_path)["versions"] > before["versions"]
    with pytest.raises(TurnwrightError) as caught:
        await client.call("GetRun", project=project, run="copy")
    assert caught.value.reason is Reason.RUN_NOT_FOUND
    assert [one.run for one in (await client.call("ListRuns", project=project)).runs] == ["r1"]
    with connected(own_db, tmp_path) as connection:
        # As if the time had passed for which it is kept.
        connection.execute(update(runs).where(runs.c.removed_ms > 0).values(removed_ms=1))
    while kept_rows(own_db, tmp_path) != before:  # noqa: ASYNC110 - the purge tells nobody
        await asyncio.sleep(0.05)
    assert (await imported(client, project, text, run="copy")).run.run == "copy"
    await client.close()
    await store.stop()


CALL = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls"}'}}
TRAJECTORY = {
    "id": "abc-123",
    "title": "New Chat",
    "model": "fast",
    "messages": [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "Hello"},
        {"content": "no role"},
        {"role": "user", "content": [{"type": "text", "text": "there"}]},
        {"role": "assistant", "content": "Looking.", "tool_calls": [CALL], "usage": {"prompt_tokens": 7}},
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        {"role": "tool", "tool_call_id": "c9", "content": "of nobody"},
        {"role": "assistant", "content": "It is a.txt."},
        {"role": "plan", "content": "First."},
        {"role": "event", "content": "more", "extra": {"event": {"subkind": "plan_delta", "payload": {"seq": 1}}}},
        {"role": "event", "content": "tick", "event": {"subkind": "tick", "source": "clock", "payload": {}}},
        {"role": "event", "content": "odd", "event": {"subkind": "odd", "source": "x", "payload": {}}},
        {"role": "cd_instruction", "content": "x"},
        {"role": "user", "content": "Again?"},
    ],
}


async def test_a_trajectory_becomes_a_run_in_the_same_way_each_time(client, project) -> None:
    found = []
    for alias in ("abc-123", "again"):
        answer = await imported(client, project, json.dumps(TRAJECTORY).encode(), run=alias if found else "")
        assert [one.place for one in answer.problems] == [f"messages[{index}]" for index in (2, 6, 11, 12)]
        assert (answer.run.run, answer.run.status, answer.run.settings.persona) == (alias, 200, "You are helpful.")
        copy = Run(client, project, alias)
        found.append((await client.call("ListMessages", **copy.address)).messages)
    assert [one.path for one in found[0]] == [one.path for one in found[1]]
    said = [(one.message.role, "".join(part.text for part in one.message.parts)) for one in found[0]]
    user, assistant, tool, event, plan = 2, 3, 4, 5, 6
    assert said == [
        (user, "Hello"), (user, "there"), (assistant, "Looking."), (tool, "a.txt"), (assistant, "It is a.txt."),
        (plan, "First."), (plan, "more"), (event, "tick"), (user, "Again?"),
    ]  # fmt: skip
    (call,) = found[0][2].message.calls
    assert (call.name, call.arguments, call.id, found[0][3].message.call_id) == (
        "shell", '{"command": "ls"}', "c1", call.call_id,
    )  # fmt: skip
    assert [(one.number, one.result.status) for one in (await client.call("ListTurns", **copy.address)).turns] == [
        (2, 200),
        (1, 102),
    ]
    (kept,) = (await client.call("ListPlans", **copy.address)).plans
    assert (kept.body, [one.text for one in kept.deltas]) == ("First.", ["more"])
    await copy.enqueue("go on")
    await copy.claim()
    assert await turn(copy) == 3


PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 20).decode()
GIF = base64.b64encode(b"GIF89a" + b"x" * 20).decode()


async def test_images_of_a_trajectory_are_images_of_its_messages(client, project) -> None:
    shown = {"m_type": "image/png", "m_content": PNG}
    address = {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{GIF}"}}
    far = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    odd = [{"m_type": "image/png", "m_content": body} for body in ("no base64", base64.b64encode(b"<svg>").decode())]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Look:"}, shown, address, far]},
        {"role": "assistant", "content": "Looking.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"m_type": "text", "m_content": "It is"}, shown]},
        *({"role": "user", "content": [part]} for part in odd),
        {"role": "user", "content": [shown]},
    ]
    answer = await imported(client, project, json.dumps({"id": "seen", "model": "fast", "messages": messages}).encode())
    assert [(one.place, one.problem) for one in answer.problems] == [
        ("messages[3]", "its image is not in base64"),
        ("messages[4]", "its image is none that models accept: PNG, JPEG, GIF or WebP"),
    ]
    run = Run(client, project, "seen")
    found = [one.message.parts for one in await conversation(run)]
    assert [[part.WhichOneof("part") for part in parts] for parts in found] == [
        ["text", "image", "image"], ["text"], ["text", "image"], ["image"],
    ]  # fmt: skip
    assert found[0][0].text == "Look:\n(image_url)"
    paths = [part.image.path for parts in found for part in parts if part.HasField("image")]
    assert len(set(paths)) == 2
    kept = [await run.entry(path) for path in paths]
    assert [one.body for one in kept] == [PNG, GIF, PNG, PNG]
    assert [json.loads(one.attributes_json)["mime"] for one in kept[:2]] == ["image/png", "image/gif"]
    # The prompt is sent again with what it shows.
    answer = await submitted(run, regenerate=commands.Regenerate())
    assert list(answer.loop.settings.images) == paths[:2]


async def test_a_prompt_with_more_images_than_a_loop_shows_is_sent_again(client, project) -> None:
    shown = [{"m_type": "image/png", "m_content": PNG}] * (IMAGES_MAX + 2)
    messages = [{"role": "user", "content": shown}, {"role": "assistant", "content": "Seen."}]
    await imported(client, project, json.dumps({"id": "many", "model": "fast", "messages": messages}).encode())
    answer = await submitted(Run(client, project, "many"), regenerate=commands.Regenerate())
    assert (len(answer.loop.settings.images), answer.loop.prompt) == (IMAGES_MAX, "(image/png)\n(image/png)")


@pytest.mark.parametrize(("title", "shown", "titled"), [("Of files", "Of files", True), ("New Chat", "there", False)])
async def test_a_trajectory_keeps_its_title_and_gets_one_where_it_has_none(
    client, project, title, shown, titled
) -> None:
    answer = await imported(client, project, json.dumps({**TRAJECTORY, "title": title}).encode())
    assert answer.run.title == shown
    run = Run(client, project, answer.run.run)
    await run.enqueue("go on")
    assert (await run.claim()).titled is titled


@pytest.mark.parametrize("name", ["a" * 129, "a\\b", "has.dot", "../x", "", None])
async def test_a_trajectory_without_an_id_that_is_one_is_refused(client, project, name) -> None:
    with pytest.raises(TurnwrightError) as caught:
        await imported(client, project, json.dumps({**TRAJECTORY, "id": name}).encode())
    assert caught.value.reason is Reason.INVALID_FIELD
    with pytest.raises(TurnwrightError, match="it is of abc-123, not of abc"):
        await imported(client, project, json.dumps(TRAJECTORY).encode(), document_id="abc")


# ---- Staged documents, and runs that show them


async def staged(client: Client, project: str, text: bytes, **fields: Any) -> str:
    answer = await imported(client, project, text, staged=True, **fields)
    assert (answer.HasField("run"), answer.HasField("expire_time")) == (False, True)
    return str(answer.staged_id)


async def submitted(run: Run, **kind: Any) -> Any:
    command = commands.SessionCommand(**kind)
    return await run.client.call("SubmitCommand", **run.address, command_id=uuid.uuid4().hex, command=command)


async def restored(run: Run, staged_id: str) -> Any:
    return await submitted(run, restore_from_trajectory=commands.RestoreFromTrajectory(staged_id=staged_id))


async def conversation(run: Run) -> list[Any]:
    return list((await run.client.call("ListMessages", **run.address)).messages)


def words(messages: list[Any]) -> list[tuple[int, str]]:
    return [(one.message.role, "".join(part.text for part in one.message.parts)) for one in messages]


async def test_a_staged_document_takes_the_place_of_the_messages_until_it_is_taken_back(client, project) -> None:
    # RC08
    run = await busy_run(client, project)
    spent = (await client.call("GetRun", **run.address)).spent
    text = json.dumps(TRAJECTORY).encode()
    here = Run(client, project, (await imported(client, project, text)).run.run)
    staged_id = await staged(client, project, text)
    assert {one.run for one in (await client.call("ListRuns", project=project)).runs} == {"r1", here.alias}
    answer = await restored(run, staged_id)
    assert (answer.run.turn, answer.rewound.files_kept) == (4, True)
    now = await conversation(run)
    wanted = words(await conversation(here))
    assert words(now)[:-1] == wanted
    assert "replaced by that of a document" in words(now)[-1][1]
    reply, result = now[2:4]
    (call,) = reply.message.calls
    assert (reply.path, call.name, call.id) == ("assistant://3", "shell", "c1")
    assert (result.path, result.message.call_id) == ("log://turn_3/shell/0", call.call_id)
    assert [one.body for one in (await client.call("ListPlans", **run.address)).plans] == ["First."]
    view = await run.view()
    assert view.bodies["src/a.py"] == "two\n"
    assert "known://gone" not in view.bodies
    after = (await client.call("GetRun", **run.address)).spent
    assert (after.turns, after.tokens) == (spent.turns, spent.tokens)
    turns = (await client.call("ListTurns", **run.address)).turns
    assert [(one.number, one.loop, one.result.usage.prompt_tokens) for one in turns[:2]] == [(4, 0, 0), (3, 0, 7)]
    # What was said before, and then the document again.
    await submitted(run, rewind_to_turn=commands.RewindToTurn(turn=2))
    assert [one.path for one in (await conversation(run))[:-1]] == ["assistant://1", "assistant://2"]
    await submitted(run, rewind_to_turn=commands.RewindToTurn(turn=4))
    assert words(await conversation(run))[: len(wanted)] == wanted
    await run.enqueue("go on")
    await run.claim()
    assert await turn(run, set_("assistant://5", "On.")) == 5
    assert words(await conversation(run))[-1] == (3, "On.")


PICTURES = [base64.b64encode(b"\x89PNG\r\n\x1a\n" + content).decode() for content in (b"one", b"two")]


async def test_an_exported_run_is_restored_with_its_commands(client, project) -> None:
    run = await working_run(client, project, "r1")
    image = '{"mime": "image/png", "bytes": 3}'
    shows = '{"loop": 1, "images": ["image://loop_1/1"]}'
    of_document = (
        set_("image://loop_1/1", PICTURES[0], image, writer=Tier.SYSTEM),
        set_("prompt://1", "Do it.", shows),
    )
    number = (await run.begin(*of_document)).next.number
    settled = record("settled")
    settled.call_id = "call_1_0"
    named = {"calls": [{"path": "log://turn_1/sh/0", "id": "call_1_0", "call_id": "call_1_0"}]}
    await run.end(
        number,
        set_("assistant://1", "Look.", json.dumps(named)),
        set_("log://turn_1/sh/0", "out", record=settled.SerializeToString(), writer=Tier.SYSTEM, turn=1),
        set_("sh://turn_1/out", "out"),
        set_("known://fact", "It is so."),
        loop=(200, "update", "Done."),
    )
    other = await working_run(client, project, "r2")
    await other.write(set_("image://loop_1/1", PICTURES[1], image, writer=Tier.SYSTEM))
    await turn(other, set_("assistant://1", "Mine."), set_("known://mine", "Mine."))
    await other.end(0, loop=(200, "update", "Done."))
    await restored(other, await staged(client, project, await text_of(run)))
    prompt, reply, result, _ = await conversation(other)
    assert [one.path for one in (prompt, reply, result)] == ["prompt://2", "assistant://2", "log://turn_2/sh/0"]
    (call,) = reply.message.calls
    assert (call.id, call.call_id, result.message.call_id) == ("call_1_0", "call_2_0", "call_2_0")
    bodies = (await other.view()).bodies
    assert [bodies[part.image.path] for part in prompt.message.parts if part.HasField("image")] == [PICTURES[0]]
    assert bodies["image://loop_1/1"] == PICTURES[1]
    assert bodies["sh://turn_2/out"] == "out"
    assert bodies["known://fact"] == "It is so."
    assert "known://mine" not in bodies
    # Its loop is none of this run: it is sent again as the run itself asks.
    assert list(json.loads((await other.entry("prompt://2")).attributes_json)) == ["images"]
    answer = await submitted(other, regenerate=commands.Regenerate())
    assert (answer.loop.prompt, answer.loop.sequence) == ("Do it.", 2)


async def test_a_document_that_cannot_be_restored_changes_nothing_also_where_it_was_queued(client, project) -> None:
    run = await busy_run(client, project)
    text = changed(await text_of(run), entries=other("assistant://1", path="assistant://999999998"))
    staged_id = await staged(client, project, text)
    before, seen = (await run.view()).kept, [one.path for one in await conversation(run)]
    with pytest.raises(TurnwrightError, match="the limit is 1000000") as caught:
        await restored(run, staged_id)
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    assert (await run.view()).kept == before
    await run.enqueue("go on")
    await run.claim()
    assert (await restored(run, staged_id)).queued
    await run.end(0, loop=(200, "update", "Done."))
    *shown, told = await conversation(run)
    assert [one.path for one in shown] == seen
    assert "could not be carried out: staged_id has" in words([told])[0][1]


async def test_half_of_a_character_is_restored_as_it_is(client, project) -> None:
    run = await busy_run(client, project)
    odd = '{"a":"\\ud800","images":["image://\\udfff"]}'
    text = changed(await text_of(run), entries=other("known://fact", attributes_json=odd))
    await restored(run, await staged(client, project, text))
    assert json.loads((await run.entry("known://fact")).attributes_json)["a"] == "\ud800"


async def test_two_names_of_one_message_are_not_restored(client, project) -> None:
    run = await busy_run(client, project)
    text = changed(await text_of(run), entries=other("assistant://1", path="assistant://02"))
    before = (await run.view()).kept
    with pytest.raises(TurnwrightError, match="name the same turn in different ways"):
        await restored(run, await staged(client, project, text))
    assert (await run.view()).kept == before


async def test_a_restore_keeps_to_the_most_entries_of_a_run(own_server, own_client, own_project, tmp_path) -> None:
    run = await busy_run(own_client, own_project)
    staged_id = await staged(own_client, own_project, json.dumps(TRAJECTORY).encode())
    await own_server.stop()
    store = await start_store(tmp_path, write_limits=WriteLimits(run_entries_max=30))
    run = Run(Client(store.address), own_project, "r1")
    await restored(run, staged_id)
    before = (await run.view()).kept
    with pytest.raises(TurnwrightError, match="entries; the limit is 30") as caught:
        await restored(run, staged_id)
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    assert (await run.view()).kept == before
    await run.client.close()
    await store.stop()


async def test_a_draft_is_counted_by_a_rate_within_bounds(client, project) -> None:
    run = await working_run(client, project, "r1")
    for rate, most in ((1e12, 100), (-5.0, 1)):
        await turn(run, calibration=rate)
        await submitted(run, set_draft=commands.SetDraft(text="Half a sentence."))
        assert 0 < json.loads((await run.entry("draft://main")).attributes_json)["tokens"] <= 16 * most


async def test_a_staged_document_is_for_whom_it_was_staged_and_the_eldest_goes(client, project) -> None:
    run = await working_run(client, project, "r1")
    await run.end(0, loop=(200, "update", "Done."))
    text = json.dumps(TRAJECTORY).encode()
    first, *more = [await staged(client, project, text) for _ in range(import_run.rows.STAGED_MAX + 1)]
    bob = as_tier(client.peer.address, Tier.CLIENT, "bob")
    for who, staged_id in ((client, first), (bob, more[0]), (client, ""), (client, f"{more[0]}~")):
        with pytest.raises(TurnwrightError, match="Import it again") as caught:
            await restored(Run(who, project, "r1"), staged_id)
        assert caught.value.reason is Reason.ENTRY_NOT_FOUND
    assert await staged(bob, project, text)
    for staged_id in more:
        await restored(run, staged_id)
    await bob.close()


async def test_a_document_that_is_too_long_is_not_staged(client, project) -> None:
    with pytest.raises(TurnwrightError, match="bytes in all; the limit is 16777216") as caught:
        await staged(client, project, b'{"id": "x", "pad": "' + b"x" * import_run.STAGED_BYTES_MAX, part=1_000_000)
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    with pytest.raises(TurnwrightError, match="leave run empty"):
        await imported(client, project, b"{}", staged=True, run="copy")


@pytest.mark.slow
async def test_a_document_of_too_many_entries_is_not_staged(client, project) -> None:
    messages = [{"role": "user", "content": "x"}] * (WRITES_MAX + 1)
    with pytest.raises(TurnwrightError, match="entries and turns") as caught:
        await staged(client, project, json.dumps({"id": "x", "messages": messages}).encode(), part=1_000_000)
    assert caught.value.reason is Reason.LIMIT_EXCEEDED


async def test_what_is_staged_expires_with_all_its_rows_and_what_was_restored_stays(own_db, tmp_path) -> None:
    store = await start_store(tmp_path, heartbeat_s=0.2, purge_after_s=0.1, purge_every_s=0.1)
    client = Client(store.address)
    project = await new_project(client)
    run = await working_run(client, project, "r1")
    await run.end(0, loop=(200, "update", "Done."))
    before = kept_rows(own_db, tmp_path)
    staged_id = await staged(client, project, json.dumps(TRAJECTORY).encode())
    await restored(run, staged_id)
    shown = words(await conversation(run))
    with connected(own_db, tmp_path) as connection:
        # As if its hour had passed.
        connection.execute(update(runs).where(runs.c.removed_ms > 0).values(removed_ms=1))
    while kept_rows(own_db, tmp_path)["runs"] != before["runs"]:  # noqa: ASYNC110 - the purge tells nobody
        await asyncio.sleep(0.05)
    assert kept_rows(own_db, tmp_path)["scopes"] == before["scopes"]
    assert words(await conversation(run)) == shown
    with pytest.raises(TurnwrightError, match="Import it again"):
        await restored(run, staged_id)
    await client.close()
    await store.stop()


@NEEDS_SHARED
async def test_a_case_of_messages_that_are_restored(client, project) -> None:
    # RC08; where a case drops a message of files or of a mode, ours keeps it: only what is for readers alone has no place here.
    run = await working_run(client, project, "r1")
    await run.end(0, loop=(200, "update", "Done."))
    for case in load_shared("refact/restore_branch.jsonl"):
        message = case["input"].get("message")
        if message is None or case["id"].startswith("branch_"):
            continue
        text = json.dumps({"id": "case", "messages": [message]}).encode()
        answer = await imported(client, project, text, staged=True)
        await restored(run, answer.staged_id)
        kept = any(text == "x" for _, text in words(await conversation(run)))
        assert (kept, answer.skipped) == (not answer.skipped, int(not kept)), case["id"]
        assert kept or not case["expected"]["restore"] or case["id"] in ELSEWHERE, case["id"]
        assert not kept or case["expected"]["branch"] or case["id"] == "event_mode_switch", case["id"]


ELSEWHERE = {"event_goal_delta": "we have no goals"}


OTHERWISE = {
    "symlink_refused": "no service opens a file of a trajectory",
    "stale_provider_identity_removed": "a run keeps no identity of a vendor",
    "repair": "a run has no frozen prefix",
    "token_totals_none": "a run counts what its turns have used, and these have none",
}
"""Where we differ from cases of trajectories, by the beginnings of their names."""


REPLY = {"role": "assistant", "content": "Hello."}


async def taken(
    client: Client, project: str, messages: Any, name: Any = "case", title: str = "", **fields: Any
) -> Run | None:
    """The run of a trajectory; None if it is refused."""
    text = json.dumps({"id": name, "title": title, "messages": messages}).encode()
    try:
        return Run(client, project, (await imported(client, project, text, **fields)).run.run)
    except TurnwrightError as error:
        return None if error.reason is Reason.INVALID_FIELD else pytest.fail(str(error))


@NEEDS_SHARED
async def test_a_case_of_trajectories_comes_to_what_it_expects(client, project) -> None:
    # RT03, RT04
    for case in load_shared("refact/trajectory.jsonl"):
        kind, given, expected = case["id"].split("/")[0], case["input"], case["expected"]
        messages = given.get("messages", [])
        match kind:
            case "id":
                found: Any = {"valid": bool(await taken(client, project, [], given["chat_id"]))}
            case "id_missing_not_loaded":
                found = {"loaded": bool(await taken(client, project, [], given["json_id"]))}
            case "id_mismatch_refuses_save":
                run = await taken(client, project, [], given["existing_file_id"], document_id=given["save_id"])
                found = {"saved": bool(run), "http_put": 409}
            case "first_user":
                run = await taken(client, project, [*messages, REPLY])
                found = {"text": (await client.call("ListRuns", project=project)).runs[0].title}
            case "placeholder":
                run = await taken(client, project, [{"role": "user", "content": "Hi."}, REPLY], title=given["title"])
                assert run
                shown = (await client.call("GetRun", **run.address)).run.title
                found = {"placeholder": shown != given["title"]}
            case "legacy_ids":
                runs_of = [await taken(client, project, messages) for _ in range(2)]
                first, again = [[one.path for one in await conversation(run)] for run in runs_of if run]
                assert first == again
                found = {**expected, "distinct": len(set(first)) == len(first)}
            case "one_bad_message_loses_all":
                # Theirs loses all of them.
                run = await taken(client, project, messages)
                assert run
                assert words(await conversation(run)) == [(2, "ok")]
                found = expected
            case "clean_title":
                found = {"title": title_in(given["raw"])}
            case _:
                assert kind in OTHERWISE, case["id"]
                continue
        assert found == expected, case["id"]
