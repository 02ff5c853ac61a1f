"""What one caller tried with another's work before there were rights, tried again, whole and with somebody who watches the results.

39 attempts, all refused to whoever has no grant; what changes something also to whoever may only read. Nothing of alice's
is different afterwards. Other attacks have tests of their own:

| attack | test |
|---|---|
| each rpc with each kind of token, also for somebody else | `contract/test_access_matrix.py` |
| two authorization headers, a raised tier, forged names of callers | `unit/core/test_tokens.py`, `contract/store/test_access.py` |
| names of callers in headers of proxies and sidecars | `contract/test_certificates.py` |
| a yolo run, or an acceptance, without the right to run commands | `contract/test_two_teams.py` |
| effects that were allowed before a grant was taken away | `contract/executor/test_grants.py` |
| watches that outlive their right | `contract/test_idle_watches.py` |
| private runs of the same project | `contract/store/test_private_runs.py`, `contract/executor/test_private_runs.py` |
| `/`, homes and other people's folders as projects; nested ones | `contract/executor/test_derived_tokens.py`, `test_nested_projects.py` |
| words in answers, logs and telemetry, while services are killed | `crash/test_two_teams_kills.py` |
| changes without a trace | `contract/store/test_audit.py`, `contract/executor/test_audit_rows.py` |
| answers that nobody reads | `contract/test_callers_that_never_read.py` |
| pages of another caller's list | `contract/store/test_paging.py` |
| commands out of the sandbox | `unit/executor/test_escapes.py` |
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct
from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import grant_pb2, message_pb2, model_pb2, plan_pb2, project_pb2, settings_pb2

from contract.store.harness import Client as StoreClient
from contract.store.harness import set_
from contract.test_access_matrix import METHODS
from services import Services, running, token_for
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_kit.peer import Peer, rpc_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORD: Final = "zanzibar"
PATH: Final = "log://turn_1/sh/touch_ran"
YOLO: Final = settings_pb2.LoopSettings(model="m", yolo=True)
SAID: Final = [message_pb2.Part(text="Do it.")]


class Mallory(Struct):
    """Whoever attacks: her clients, and what she knows of alice's project."""

    executor: Client
    store: StoreClient
    peers: dict[str, Peer]
    project: str
    root: Path

    async def direct(self, service: str, rpc: str, **fields: Any) -> Any:
        """A call to a service that is not meant for people."""
        method = next(one for one in METHODS.values() if one.name == rpc)
        peer = self.peers[service]
        request = GetMessageClass(method.input_type)(**fields)
        if not method.server_streaming:
            return await peer.call(rpc_of(peer.channel, method), request)
        async with peer.stream(rpc_of(peer.channel, method), request, 10.0) as answers:
            return await anext(answers)


async def listed(items: Any) -> list[Any]:
    return [one async for one in items]


async def first(items: Any) -> Any:
    async with contextlib.aclosing(items) as messages:
        return await anext(messages)


Attack = Callable[[Mallory], Any]

READS: Final[dict[str, Attack]] = {
    "all projects with their roots": lambda m: listed(m.executor.list_projects()),
    "all projects, at the store": lambda m: m.store.call("ListProjects"),
    "the runs": lambda m: listed(m.executor.list_runs(m.project)),
    "a run": lambda m: m.executor.get_run(m.project, "r"),
    "the entries, with contents of files": lambda m: listed(m.executor.list_entries(m.project, "r", "**")),
    "one file": lambda m: m.executor.get_entry(m.project, "r", "notes.txt"),
    "a packet as it was sent to the model": lambda m: m.executor.read_packet(m.project, "r", 1),
    "why it was sent": lambda m: m.executor.explain_packet(m.project, "r", 1),
    "the search": lambda m: m.store.call("SearchEntries", project=m.project, query=WORD),
    "the messages": lambda m: listed(m.executor.list_messages(m.project, "r")),
    "a live watch": lambda m: first(m.executor.watch(m.project, "r")),
    "the whole run as a document": lambda m: first(m.executor.export_run(m.project, "r")),
    "everybody's inbox": lambda m: listed(m.executor.list_proposals()),
}

CHANGES: Final[dict[str, Attack]] = {
    "accept with an edited command": lambda m: m.executor.resolve(
        m.project, "r", PATH, accept=True, contents={"": "touch stolen"}
    ),
    "accept": lambda m: m.executor.resolve(m.project, "r", PATH, accept=True),
    "reject": lambda m: m.executor.resolve(m.project, "r", PATH, accept=False),
    "a yolo run of her own": lambda m: m.executor.act(m.project, "Go.", run="hers", settings=YOLO),
    "yolo on alice's run": lambda m: m.executor.configure_run(m.project, "r", settings_pb2.RunSettingsPatch(yolo=True)),
    "words in alice's loop": lambda m: m.executor.inject_message(m.project, "r", "Do it."),
    "a task in alice's queue": lambda m: m.executor.ask(m.project, "Go.", run="r"),
    "a message in alice's session": lambda m: m.executor.submit(m.project, "r", user_message={"parts": SAID}),
    "a draft": lambda m: m.executor.submit(m.project, "r", set_draft={"text": "Do it."}),
    "a plan": lambda m: m.executor.set_plan(m.project, "r", plan_pb2.Plan(plan_id="p", body="Do it.")),
    "a schedule on alice's budget": lambda m: m.executor.set_schedule(
        m.project, "r", "s", every=timedelta(minutes=1), prompt="Go."
    ),
    "an abort": lambda m: m.executor.abort(m.project, "r"),
    "a fork": lambda m: m.executor.fork_run(m.project, "r", new_run="fork"),
    "another name": lambda m: m.executor.rename_run(m.project, "r", "else"),
    "the end of the run": lambda m: m.executor.delete_run(m.project, "r"),
    "a tool that reads": lambda m: m.executor.call_tool(m.project, "r", "get", {"path": "notes.txt"}),
    "a tool that writes": lambda m: m.executor.call_tool(m.project, "r", "set", {"path": "notes.txt"}, "Mine."),
    "a command": lambda m: m.executor.call_tool(m.project, "r", "sh", {}, "touch ran"),
    "constraints of files": lambda m: m.executor.set_file_constraints(
        m.project, {"**": project_pb2.FILE_CONSTRAINT_KIND_IGNORE}
    ),
    "a fetch from the executor's network": lambda m: m.executor.call_tool(
        m.project, "r", "get", {"path": "http://127.0.0.1/"}
    ),
    "a notice of the system": lambda m: m.executor.notify(
        m.project, "r", event_pb2.Notice(text="All is well.", source="system")
    ),
    "a model": lambda m: m.executor.set_model(model_pb2.Model(alias="m", vendor_model="openai/expensive")),
    "settings of a service": lambda m: m.direct("executor", "GetSettings"),
    "a new root": lambda m: m.executor.init_project(str(m.root)),
    "a lease": lambda m: m.store.call("ClaimRun", project=m.project, run="r", owner="me", address="here:1"),
    "a forged record": lambda m: m.store.call(
        "WriteEntries", project=m.project, run="r", epoch=1, writes=[set_(PATH, "x")]
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def services(tmp_path_factory):
    """A stack in which a command of alice's run waits for a decision."""
    root = tmp_path_factory.mktemp("attacks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
        async with running(root, client_roots=str(root / "open")) as made:
            await made.client.delete_grant(made.project, "*")
            await made.client.set_grant(made.project, "user:alice", grant_pb2.GRANT_ROLE_OWNER)
            (made.files / "notes.txt").write_text(WORD)
            made.script(f'<get path="notes.txt"/><sh>touch ran</sh><update status="102">{WORD}</update>')
            async with Client.connect(made.addresses["executor"], token_for("alice")) as alice:
                settings = settings_pb2.LoopSettings(model="m")
                await made.until(await alice.act(made.project, f"Say {WORD}.", run="r", settings=settings), 202)
            yield made


@pytest_asyncio.fixture(loop_scope="module")
async def mallory(services):
    async with contextlib.AsyncExitStack() as stack:
        peers = {}
        for name, address in services.addresses.items():
            peers[name] = Peer(name, address, token_for("mallory", audience=name), 10.0)
            stack.push_async_callback(peers[name].close)
        store = StoreClient(services.addresses["store"], token_for("mallory", audience="store"))
        stack.push_async_callback(store.close)
        executor = await stack.enter_async_context(Client.connect(services.addresses["executor"], token_for("mallory")))
        yield Mallory(executor, store, peers, services.project, services.files)


async def everything(services: Services) -> dict[str, object]:
    """All that alice's team has."""
    client, project = services.client, services.project
    return {
        "files": {file.name: file.read_text() for file in services.files.iterdir() if file.is_file()},
        "runs": [str(one) for one in await listed(client.list_runs(project))],
        "entries": [str(one) for one in await listed(client.list_entries(project, "r", "**"))],
        "schedules": await client.list_schedules(project, "r"),
        "commands": await client.list_commands(project, "r"),
        "constraints": await client.list_file_constraints(project),
        "proposals": [str(one) for one in await listed(client.list_proposals(project))],
        "grants": [str(one) for one in await listed(client.list_grants(project))],
        "models": [str(one) for one in await client.list_models()],
    }


async def reason_of(attack: Attack, mallory: Mallory) -> str:
    try:
        told = str(await attack(mallory))
    except TurnwrightError as error:
        return f"{error.reason.name}, with {WORD}" if WORD in f"{error} {error.metadata}" else error.reason.name
    return "told" if WORD in told or mallory.project in told else "nothing"


async def test_as_many_are_tried_as_then() -> None:
    assert len(READS) + len(CHANGES) == 39


async def test_who_has_no_grant_finds_nothing_and_changes_nothing(services, mallory):
    before = await everything(services)
    found = {name: await reason_of(attack, mallory) for name, attack in (READS | CHANGES).items()}
    closed = dict.fromkeys(found, Reason.PROJECT_NOT_FOUND.name)
    filtered = ("all projects with their roots", "all projects, at the store", "everybody's inbox")
    missing = ("a model", "settings of a service", "a new root", "a lease")
    assert found == closed | dict.fromkeys(filtered, "nothing") | dict.fromkeys(missing, Reason.RIGHT_MISSING.name)
    assert await everything(services) == before


async def test_who_may_only_read_changes_nothing(services, mallory):
    before = await everything(services)
    await services.client.set_grant(services.project, "user:mallory", grant_pb2.GRANT_ROLE_VIEWER)
    assert await reason_of(READS["one file"], mallory) == "told"
    found = {name: await reason_of(attack, mallory) for name, attack in CHANGES.items()}
    # Whoever sees a project may open it, which changes nothing.
    assert found == dict.fromkeys(found, Reason.RIGHT_MISSING.name) | {"a new root": "told"}
    await services.client.delete_grant(services.project, "user:mallory")
    assert await everything(services) == before
