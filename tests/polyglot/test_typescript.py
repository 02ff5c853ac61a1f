"""`@turnwright/client` as it is published, in Node: by gRPC and by HTTP, with TLS and without, and through the edge."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import model_pb2

from edges import WAIT_S, edge
from polyglot.packed import COMMANDS, MODULES, NODE, OF_PAGE, PAGE, REPO, SOURCE, needs_node, package, run
from polyglot.test_clients import SCRIPT, Cursors, finished, resumed
from proxy import proxied
from services import SECRET, Services, running, token_for
from turnwright_client import Client, RunView
from turnwright_core import __version__
from turnwright_core.rpc.certificates import Tls

pytestmark = [needs_node, pytest.mark.timeout(600)]
in_loop = pytest.mark.asyncio(loop_scope="module")

__all__ = ["package"]
CUTS = 100
IN_PLAINTEXT = ("grpc", "connect", "grpc-web")
DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'


def options_of(protocol: str, **more: Any) -> str:
    return json.dumps({"protocol": protocol, **more})


@dataclass
class Way:
    """How a client comes to the stack: `url` with these options, by a proxy that can cut it."""

    root: Path
    at: str
    options: dict[str, Any]
    client: Client
    cursors: Cursors
    project: str = ""
    services: Services | None = None
    scheme: str = "http"
    others: dict[str, str] = field(default_factory=dict)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory):
    """An executor without TLS."""
    root = tmp_path_factory.mktemp("plain")
    cursors = Cursors()
    more = {"client_roots": str(root), "http_listen": "127.0.0.1:0", "event_heartbeat_s": 1.0}
    async with running(root, [cursors], **more) as services:
        await services.client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
        yield services, cursors


def to_plain(stack, protocol: str) -> Way:
    services, cursors = stack
    http = services.servers["executor"].http.url.removeprefix("http://")
    at = services.addresses["executor"] if protocol == "grpc" else http
    options = {"protocol": protocol}
    return Way(services.root, at, options, services.client, cursors, services.project, services)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured(tmp_path_factory):
    """Two executors with TLS, and an edge in front of them that asks for a certificate."""
    root = tmp_path_factory.mktemp("tls")
    cursors = Cursors()
    async with (
        running(root, [cursors], client_roots=str(root)) as services,
        edge(services, observers=[cursors], client_roots=str(root), http_listen="127.0.0.1:0") as at,
        Client.connect(at.address, SECRET, 60, tls=Tls(authorities=at.authority.file)) as client,
    ):
        await client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
        own = at.clients.issue(root / "node.tls")
        ca = at.authority.file.read_text()
        mine = {"cert": (own / "cert.pem").read_text(), "key": (own / "key.pem").read_text()}
        first = at.executors[0]
        yield {
            "tls": Way(root, first.address, {"ca": ca}, client, cursors, scheme="https"),
            "tls-connect": Way(
                root, first.http.url.removeprefix("https://"), {"ca": ca, "protocol": "connect"}, client, cursors, scheme="https"
            ),
            "edge": Way(root, at.mutual, {"ca": ca, **mine}, client, cursors, scheme="https"),
        }  # fmt: skip


@contextlib.asynccontextmanager
async def node(folder: Path, *arguments: str):
    process = await asyncio.create_subprocess_exec(
        NODE, *arguments, cwd=folder, env={"TOKEN": token_for("node")}, limit=1 << 24,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(2 * WAIT_S):
            yield process
            assert process.stderr
            ended = (await process.wait(), (await process.stderr.read()).decode())
            assert ended == (0, ""), ended
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def next_line(process) -> Any:
    line = await process.stdout.readline()
    assert line, (await process.stderr.read()).decode()
    return json.loads(line)


# ---- What is published


def test_the_package_is_built_files_and_messages_and_nothing_else(package):
    names = package.names()
    assert {name for name in names if not name.startswith("dist/")} == {"package.json", "README.md"}
    scripts = [name for name in names if name.endswith(".js")]
    assert {f"{name[:-3]}.d.ts" for name in scripts} | {*scripts, "dist/LICENSE", "package.json", "README.md"} == {
        *names
    }
    stubs = {str(file.relative_to(REPO / "gen/ts")) for file in (REPO / "gen/ts").rglob("*.js")}
    assert stubs == {name.removeprefix("dist/protos/") for name in scripts if "/protos/" in name}


def test_its_version_is_that_of_the_release_and_its_peers_those_that_are_tested(package):
    about = json.loads((SOURCE / "package.json").read_text())
    assert about["version"] == __version__
    locked = json.loads((REPO / "package-lock.json").read_text())["packages"]
    peers = {name: locked[f"node_modules/{name}"]["version"] for name in about["peerDependencies"]}
    assert {name: about["devDependencies"][name] for name in peers} == peers
    assert {name: f"^{peers[name]}" for name in peers if "@" in name} == {
        name: wanted for name, wanted in about["peerDependencies"].items() if "@" in name
    }
    [wanted] = re.findall(r"connect-node@([\d.]+)$", COMMANDS[0])
    assert f"{peers['@connectrpc/connect-node']}.".startswith(f"{wanted}.")


def test_its_types_know_the_contract_and_the_names_of_errors(package):
    settings = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"]
    about = package.folder / "package.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"type": "module"}))
    assert run([NODE, str(MODULES / "typescript/bin/tsc"), *settings, "typed.ts"], package.folder) == ""


@pytest.mark.parametrize(
    ("address", "options", "fails"),
    [
        ("http://agents.example.com:7440", "{}", True),
        ("agents.example.com:7440", "{}", False),
        ("http://agents.example.com", '{"insecure": true}', False),
        ("http://127.0.0.1:7440", "{}", False),
        ("http://127.0.0.1.example.com:7440", "{}", True),
        ("http://[::1]:7440", "{}", False),
    ],
)
def test_a_token_goes_to_other_hosts_with_tls_alone(package, address, options, fails):
    program = 'import { connect } from "@turnwright/client"; connect(process.argv[1], "t", JSON.parse(process.argv[2])).close();'
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", program, address, options],
        cwd=package.folder, capture_output=True, text=True, check=False, timeout=WAIT_S,
    )  # fmt: skip
    assert (done.returncode != 0, "in plaintext, because others could read the token" in done.stderr) == (fails, fails)


@pytest.mark.parametrize("protocol", IN_PLAINTEXT)
def test_an_executor_that_is_not_there_is_named_with_what_to_do(package, protocol):
    program = """
        import { connect } from "@turnwright/client";
        const client = connect("127.0.0.1:1", "t", { protocol: process.argv[1] });
        const print = ({ reason, values, message }) => console.log(JSON.stringify([reason, values, message]));
        await client.runs.getRun({}).catch(print);
        await client.watchRun({ project: "p", run: "r" }, { retriesMax: 0 }).next().catch(print);
        client.close();
    """
    told = run([NODE, "--input-type=module", "-e", program, protocol], package.folder).splitlines()
    assert len(told) == 2
    for reason, values, message in map(json.loads, told):
        assert (reason, values) == ("SERVICE_UNAVAILABLE", {"service": "executor", "address": "127.0.0.1:1"})
        assert message.startswith("SERVICE_UNAVAILABLE: The executor at 127.0.0.1:1 does not answer: ")
        assert message.endswith("127.0.0.1:1. Is it running there, for instance by `turnwright serve`?")


# ---- The tour


async def toured(way: Way, package, name: str) -> None:
    """The page's program as it stands there, but for the options of this way."""
    (way.root / "m.txt").write_text(SCRIPT)
    root = way.root / name
    root.mkdir()
    text = OF_PAGE["tour.mjs"]
    connects = "connect(address, process.env.TOKEN)"
    assert connects in text
    program = package.folder / f"tour-{name}.mjs"
    program.write_text(text.replace(connects, f"{connects[:-1]}, {json.dumps(way.options)})"))
    async with proxied(way.at, is_opaque=True) as proxy:
        address = f"{way.scheme}://{proxy.address}"
        async with node(package.folder, str(program), address, str(root), "m", "Say hello.") as process:
            printed, is_cut = b"", False
            while read := await process.stdout.read(65536):
                printed += read
                if not is_cut and b"Hello" in printed:
                    is_cut = True
                    proxy.reset()
    assert is_cut
    await finished(way, root, printed.decode())
    if way.options.get("protocol", "grpc") == "grpc":
        await resumed(way, root)


@pytest.mark.parametrize("protocol", IN_PLAINTEXT)
@in_loop
async def test_the_tour_works_and_survives_a_cut(stack, package, protocol):
    await toured(to_plain(stack, protocol), package, f"plain-{protocol}")


@pytest.mark.parametrize("name", ["tls", "tls-connect", "edge"])
@in_loop
async def test_the_tour_works_with_tls_and_behind_the_edge(secured, package, name):
    await toured(secured[name], package, f"by-{name}")


def test_the_page_says_how_the_tour_is_called():
    assert COMMANDS[0].startswith("npm install @turnwright/client ")
    assert COMMANDS[1].endswith(" node tour.mjs 127.0.0.1:7440 \"$PWD\" scripted/hello 'Say hello.'")
    assert len(COMMANDS) == 2
    assert len(OF_PAGE["tour.mjs"].splitlines()) <= 32
    assert PAGE.count("\n") < 100


# ---- Watches


@pytest.mark.parametrize("protocol", ["grpc", "connect"])
@in_loop
async def test_a_watch_that_is_cut_a_hundred_times_has_each_event_once_and_ends_with_the_run(stack, package, protocol):
    way = to_plain(stack, protocol)
    services, run_name = way.services, f"cut-{protocol}"
    services.script(f"First.<sh>echo it</sh>{GO_ON}", "Second." + DONE)
    queued = await services.act("Work.", run=run_name, yolo=False)
    await services.until(queued, 202)
    request = json.dumps({"project": way.project, "run": run_name})
    seen = []
    async with (
        proxied(way.at, is_opaque=True) as proxy,
        node(package.folder, "watching.mjs", proxy.address, SECRET, json.dumps(way.options), request) as process,
    ):

        async def until(text):
            while True:
                seen.append(await next_line(process))
                if seen[-1]["text"] == text or seen[-1]["kind"] == text:
                    return

        await until("snapshot")
        for number in range(CUTS):
            # One comes by the connection, the next while there is none.
            for part in "ab":
                text = f"{number}{part}"
                await services.client.notify(way.project, run_name, event_pb2.Notice(text=text))
                if part == "a":
                    await until(text)
                    proxy.reset()
        [proposal] = (await services.client.get_run(way.project, run_name)).proposals
        await services.client.resolve(way.project, run_name, proposal, accept=True)
        await until("end")
        assert proxy.accepted > CUTS
    assert [one["text"] for one in seen if one["kind"] == "notice"] == [
        f"{n}{part}" for n in range(CUTS) for part in "ab"
    ]
    assert [one["kind"] for one in seen].count("snapshot") == 1
    numbers = [int(one["at"].split(":")[1]) for one in seen if one["kind"] not in ("snapshot", "heartbeat", "end")]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert seen[-2]["kind"] == "runState"
    assert seen[-1] == await folded(services, way.project, run_name)


async def folded(services, project: str, name: str) -> dict[str, Any]:
    """What the client in Python says of a run that has ended."""
    view = RunView()
    async with contextlib.aclosing(services.client.watch(project, name)) as events:
        async for event in events:
            view.apply(event)
            if event.snapshot.last:
                break
    assert view.run
    entries = {entry.path: [entry.status, entry.body] for entry in view.timeline()}
    cursor = [str(view.cursor.epoch), str(view.cursor.seq)] if view.cursor else None
    return {
        "kind": "end",
        "text": "",
        "status": view.run.status,
        "state": view.state,
        "entries": entries,
        "cursor": cursor,
    }


def test_what_is_missing_is_made_up_for_by_a_snapshot(package):
    told = json.loads(run([NODE, "gaps.mjs"], package.folder))
    assert told["asked"] == [None, None, None, 6, None]
    assert told["seen"] == [
        "snapshot 1", "snapshot 2", "snapshot 2", "notice 3", "snapshot 5", "notice 6", "snapshot 9", "notice 10", "runState 11",
    ]  # fmt: skip


@in_loop
async def test_a_watch_behind_the_last_event_of_a_run_ends_too(stack, package):
    way = to_plain(stack, "grpc")
    way.services.script("It is done." + DONE)
    await way.services.until(await way.services.act("Work.", run="over"))
    epoch, seq = (await folded(way.services, way.project, "over"))["cursor"]
    request = json.dumps({"project": way.project, "run": "over", "after": {"epoch": epoch, "seq": seq}})
    async with (
        proxied(way.at) as proxy,
        node(package.folder, "watching.mjs", proxy.address, SECRET, json.dumps(way.options), request) as process,
    ):
        kinds = [json.loads(line)["kind"] async for line in process.stdout]
    assert kinds == ["heartbeat", "heartbeat", "end"]


@pytest.mark.parametrize("protocol", ["grpc", "connect"])
@in_loop
async def test_a_list_of_runs_goes_on_where_it_was(stack, package, protocol):
    way = to_plain(stack, protocol)
    there = await way.services.with_project(f"list-{protocol}")
    names = [f"r{number}" for number in range(5)]
    async with proxied(way.at, is_opaque=True) as proxy:
        process = await asyncio.create_subprocess_exec(
            NODE, "listing.mjs", proxy.address, SECRET, json.dumps(way.options), there.project,
            cwd=package.folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(2 * WAIT_S):
                assert await next_line(process) == []
                for number, name in enumerate(names):
                    proxy.reset()
                    there.script(DONE)
                    await there.until(await there.act("Work.", run=name))
                    while await next_line(process) != names[: number + 1]:
                        pass
                await there.client.delete_run(there.project, names.pop(0))
                while await next_line(process) != names:
                    pass
        finally:
            process.kill()
            await process.wait()


# ---- Calls


@in_loop
async def test_questions_are_answered_proposals_refused_and_errors_have_names(stack, package):
    way = to_plain(stack, "grpc")
    (way.services.files / "kept.txt").write_text("kept\n")
    way.services.script(
        f"<ask_user>Which colour?</ask_user>{GO_ON}", f'<set path="kept.txt">other\n</set>{GO_ON}', "Well." + DONE
    )
    arguments = (json.dumps(way.options), way.project, "m")
    async with proxied(way.at) as proxy:
        # The first answer is lost, and the task is given once.
        lost = []

        def lose(connection, stream):
            if not lost:
                lost.append(stream)
                proxy.reset()

        proxy.on_data = lose
        before = {one.run async for one in way.services.client.list_runs(way.project)}
        async with node(package.folder, "calling.mjs", proxy.address, SECRET, *arguments) as process:
            printed = [json.loads(line) async for line in process.stdout]
    name = printed[0][0]
    assert printed == [
        [name, 200],
        ["RUN_NOT_FOUND", {"project": way.project, "run": "no-such"}, 5],
        ["RUN_NOT_FOUND", {"project": way.project, "run": "no-such"}, 5],
        0,
        ["UNAUTHENTICATED", {"cause": "unknown_key"}, 16],
        200,
    ]
    assert lost
    assert {one.run async for one in way.services.client.list_runs(way.project)} - before == {name}
    assert (way.services.files / "kept.txt").read_text() == "kept\n"
    bodies = [entry.body async for entry in way.services.client.list_entries(way.project, name)]
    assert any("blue" in body for body in bodies)
    assert any("Not this file." in body for body in bodies)
