"""What stands between a decision and its effect: plugins, silence, other executors, and crashes."""

from __future__ import annotations

import importlib
import json
import os
import stat
import sys

import pytest
import pytest_asyncio
from turnwright.types.v1 import command_record_pb2

from contract.executor.proposing import (
    DONE,
    GO_ON,
    PROPOSAL,
    SET,
    Another,
    listed,
    waiting,
)
from services import SECRET, running
from turnwright_client import Client
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build
from turnwright_kit.server import RunningServer

pytestmark = pytest.mark.asyncio

EXPIRED = command_record_pb2.DECISION_KIND_EXPIRED


# ---- Plugins

PLUGIN = """
from turnwright_executor.hooks import (
    PROPOSAL_ACCEPTED, PROPOSAL_ACCEPTING, PROPOSAL_CONTENT, PROPOSAL_PENDING, PROPOSAL_REJECTED,
)

HEARD = []


def register(registry):
    registry.filter(PROPOSAL_ACCEPTING, guard)
    registry.filter(PROPOSAL_CONTENT, header)
    for hook in (PROPOSAL_PENDING, PROPOSAL_ACCEPTED, PROPOSAL_REJECTED):
        registry.on(hook, told(hook.name))


def guard(acceptance, proposal):
    HEARD.append(("accepting", proposal.path, proposal.yolo))
    if proposal.tool == "sh":
        return acceptance.vetoed("permission:403", "Nothing is run on Fridays.")
    return acceptance


def header(content, file):
    HEARD.append(("content", file.path, file.staged, file.edited))
    return type(content)("# checked\\n" + content.text)


def told(name):
    async def observer(payload):
        proposal = getattr(payload, "proposal", payload)
        HEARD.append((name, proposal.path, getattr(payload, "outcome", ""), getattr(payload, "comment", "")))

    return observer
"""


@pytest_asyncio.fixture
async def guarded(tmp_path, monkeypatch):
    """Services with the plugin, and what it heard."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "fridays.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path / "plugins"))
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, hooks="fridays:register") as services:
        (services.files / "a.txt").write_text("old\n")
        yield services, importlib.import_module("fridays").HEARD
    sys.modules.pop("fridays", None)


async def test_plugins_amend_what_was_accepted_and_hear_of_it_in_order(guarded):
    # RU252, RU253, RU254
    services, heard = guarded
    queued = await waiting(services, f"{SET}{GO_ON}", DONE)
    await services.client.resolve(services.project, "r", PROPOSAL, accept=True, contents={"": "mine\n"})
    await services.until(queued)
    assert (services.files / "a.txt").read_text() == "# checked\nmine\n"
    assert heard == [
        ("proposal.pending", PROPOSAL, "", ""),
        ("accepting", PROPOSAL, False),
        ("content", "a.txt", "new\n", "mine\n"),
        ("proposal.accepted", PROPOSAL, "", ""),
    ]


async def test_a_run_that_asks_nobody_passes_the_same_filters(guarded):
    # RU162, RU164
    services, heard = guarded
    services.script(f"{SET}{GO_ON}", DONE)
    await services.until(await services.act())
    assert (services.files / "a.txt").read_text() == "# checked\nnew\n"
    assert heard == [
        ("accepting", PROPOSAL, True),
        ("content", "a.txt", "new\n", None),
        ("proposal.accepted", PROPOSAL, "", ""),
    ]


async def test_a_veto_fails_the_record_and_nothing_happens(guarded):
    # RU252
    services, heard = guarded
    queued = await waiting(services, f"<sh>touch ran</sh>{GO_ON}", DONE)
    path = "log://turn_1/sh/touch_ran"
    await services.client.resolve(services.project, "r", path, accept=True)
    await services.until(queued)
    record = await services.entry(path)
    assert (record.status, record.outcome, record.body) == (403, "permission:403", "Nothing is run on Fridays.")
    assert not (services.files / "ran").exists()
    assert heard[-1] == ("proposal.rejected", path, "permission:403", "")


async def test_plugins_hear_of_a_rejection_with_its_comment(guarded):
    # RU254
    services, heard = guarded
    queued = await waiting(services, f"{SET}{GO_ON}", DONE)
    await services.client.resolve(services.project, "r", PROPOSAL, accept=False, comment="Not that one.")
    await services.until(queued)
    assert heard == [
        ("proposal.pending", PROPOSAL, "", ""),
        ("proposal.rejected", PROPOSAL, "rejected:403", "Not that one."),
    ]


# ---- Expiry


@pytest.mark.parametrize("recover", [True, False], ids=["looks for work", "waits to be told"])
async def test_a_loop_whose_proposal_expires_says_so_and_the_run_can_go_on(tmp_path, monkeypatch, recover):
    # C20
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_PROPOSAL_EXPIRE_S", "0.4")
    async with running(tmp_path, work_poll_s=0.1, recover=recover) as services:
        (services.files / "a.txt").write_text("old\n")
        queued = await waiting(services, f"{SET}{GO_ON}", DONE)
        loop = await services.until(queued)
        record = await services.entry(PROPOSAL)
        assert (loop.status, loop.reason) == (499, "expired")
        assert (record.status, record.outcome) == (499, "expired:499")
        [decided] = [one.proposal_resolved.decision for one in services.events if one.HasField("proposal_resolved")]
        assert (decided.path, decided.outcome, decided.kind) == (PROPOSAL, "expired:499", EXPIRED)
        assert "Nobody decided within 0.4 s" in record.body
        assert (await services.client.get_run(services.project, "r")).run.status == 200
        assert (await services.until(await services.act("Go on."))).status == 200


# ---- What stands in the way


@pytest.mark.parametrize(
    ("becomes", "outcome"),
    [
        (lambda file: file.mkdir(), "conflict:409"),
        (lambda file: file.symlink_to("nowhere"), "conflict:409"),
        (lambda file: file.symlink_to("/etc/hostname"), "permission:403"),
        (os.mkfifo, "conflict:409"),
    ],
    ids=["a folder", "a link to nothing", "a link out of the project", "a pipe"],
)
async def test_what_somebody_wrote_is_kept_where_something_else_stands_in_the_way(services, becomes, outcome):
    # RU253; architecture 6: acceptance reports a conflict instead of overwriting
    queued = await waiting(services, f"{SET}{GO_ON}", DONE)
    file = services.files / "a.txt"
    file.unlink()
    becomes(file)
    kind = stat.S_IFMT(file.lstat().st_mode)
    await services.client.resolve(services.project, "r", PROPOSAL, accept=True, contents={"": "mine\n"})
    await services.until(queued)
    record = await services.entry(PROPOSAL)
    assert (record.outcome, json.loads(record.attributes_json)["unwritten"]) == (outcome, {"a.txt": "mine\n"})
    assert stat.S_IFMT(file.lstat().st_mode) == kind


# ---- Without a sandbox


async def test_a_look_at_the_system_waits_where_nothing_keeps_it_from_changing_the_project(tmp_path, monkeypatch):
    # RU009; C30
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, sh_sandbox="limits") as services:
        queued = await waiting(services, f"<env>echo hello</env>{GO_ON}", DONE)
        [(_, path, tool)] = await listed(services.client)
        assert tool == "env"
        await services.client.resolve(services.project, "r", path, accept=True)
        assert (await services.until(queued)).status == 200
        assert await services.status(path) == 200


# ---- Other executors, and crashes


@pytest_asyncio.fixture
async def watchful(tmp_path, monkeypatch):
    """Services whose executor soon finds what others left."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, work_poll_s=0.1) as services:
        (services.files / "a.txt").write_text("old\n")
        another = Another(services)
        yield services, another
        await another.peer.close()


async def test_a_decision_that_no_executor_saw_is_carried_out(watchful):
    # RU255; architecture 11
    services, another = watchful
    queued = await waiting(services, f"{SET}{GO_ON}", DONE)
    await another.accept()
    assert (await services.until(queued)).status == 200
    assert (services.files / "a.txt").read_text() == "new\n"


@pytest.mark.parametrize(
    ("found", "status", "left"),
    [
        ("old\n", 200, "new\n"),
        ("new\n", 200, "new\n"),
        ("other\n", 409, "other\n"),
        (None, 409, None),
    ],
    ids=["as it was: apply", "as it shall be: done", "something else: conflict", "gone: conflict"],
)
async def test_an_accepted_effect_that_its_executor_left_unfinished_is_completed(watchful, found, status, left):
    # architecture 11: accepted, file effect unfinished
    services, another = watchful
    queued = await waiting(services, f"{SET}{DONE}", DONE)
    await another.claim()
    await another.accept()
    await another.mark()
    file = services.files / "a.txt"
    file.unlink()
    if found is not None:
        file.write_text(found)
    await another.die()
    await services.until(queued)
    assert await services.status(PROPOSAL) == status
    assert (file.read_text() if file.exists() else None) == left
    assert not list(services.files.glob(".*.tmp"))


async def test_a_decision_through_an_executor_that_cannot_see_the_project_reaches_the_one_that_can(
    tmp_path, monkeypatch
):
    # architecture 3, 7
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    (tmp_path / "elsewhere").mkdir()
    async with running(tmp_path, work_poll_s=0.1) as services:
        (services.files / "a.txt").write_text("old\n")
        queued = await waiting(services, f"{SET}{GO_ON}", DONE)
        at = f"unix:{tmp_path}/second.sock"
        peers = {name: services.addresses[name] for name in ("store", "provider", "assembler")}
        settings = ExecutorSettings(
            home=tmp_path / "home", token=SECRET, log_level="error", listen=at,
            workspaces=str(tmp_path / "elsewhere"), recover=False, **peers,
        )  # fmt: skip
        second = RunningServer(build(settings, SECRET), at, SECRET, 1.0)
        await second.start()
        async with Client.connect(at, SECRET) as client:
            assert [run for run, *_ in await listed(client)] == ["r"]
            await client.resolve(services.project, "r", PROPOSAL, accept=True)
        assert (await services.until(queued)).status == 200
        await second.stop()
    assert (tmp_path / "project" / "a.txt").read_text() == "new\n"
