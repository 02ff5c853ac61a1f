"""The module for Go: its tour against a stack, directly and by the edge, in plaintext and by TLS; its fold; its release."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from turnwright.executor.v1 import event_pb2, executor_service_pb2, session_event_pb2
from turnwright.types.v1 import cursor_pb2, delta_pb2, entry_pb2, model_pb2, plan_pb2, session_pb2
from turnwright_values.types import Usage

from edges import WAIT_S, edge
from polyglot.pages import REPO, missing_go
from polyglot.test_clients import PROSE, SCRIPT
from services import SECRET, running
from turnwright_client import RunView
from turnwright_core import __version__
from turnwright_core.wire.messages import message_to_pb
from turnwright_core.wire.runs import usage_to_pb
from unit.client.test_fold import Event, Executor, step

MODULE = REPO / "services/clients/go"
STUBS = REPO / "gen/go"
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing_go(MODULE)), reason=missing_go(MODULE) or "nothing is missing"),
]


def go(*arguments: str, folder: Path = MODULE, **environment: str) -> str:
    ran = subprocess.run(
        ["go", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}"
    return ran.stdout


@functools.cache
def compiled() -> str:
    """The compiled tests of the module."""
    program = REPO / "build/clients/go-module.test"
    go("test", "-c", "-o", str(program), ".")
    return str(program)


@dataclass
class Way:
    """How the tour comes to an executor."""

    name: str
    address: str
    root: Path
    environment: dict[str, str] = field(default_factory=dict)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ways(tmp_path_factory) -> AsyncIterator[dict[str, Way]]:
    """Two stacks: an executor in plaintext; and two that have TLS, with the edge in front of them."""
    async with contextlib.AsyncExitStack() as stopping:
        found = []
        for name in ("plaintext", "tls"):
            folder = tmp_path_factory.mktemp(name)
            (folder / "m.txt").write_text(SCRIPT)
            services = await stopping.enter_async_context(running(folder, client_roots=str(folder)))
            await services.client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
            if name == "plaintext":
                found.append(Way(name, services.addresses["executor"], folder))
                continue
            at = await stopping.enter_async_context(edge(services, client_roots=str(folder)))
            trusting = {"TURNWRIGHT_TLS_CA": str(at.authority.file)}
            own = at.clients.issue(folder / "go.tls")
            presenting = {"TURNWRIGHT_TLS_CERT": f"{own}/cert.pem", "TURNWRIGHT_TLS_KEY": f"{own}/key.pem"}
            found += [
                Way("tls", at.executors[0].address, folder, trusting),
                Way("edge", at.address, folder, trusting),
                Way("certificate", at.mutual, folder, trusting | presenting),
            ]
        yield {way.name: way for way in found}


@pytest.mark.parametrize("name", ["plaintext", "tls", "edge", "certificate"])
async def test_the_tour_in_go(ways, name):
    way = ways[name]
    root = way.root / f"go-{name}"
    root.mkdir()
    environment = os.environ | way.environment | {
        "TOKEN": SECRET, "TOUR_ADDRESS": way.address, "TOUR_ROOT": str(root), "TOUR_PROSE": "|".join(PROSE),
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        await asyncio.to_thread(compiled), "-test.v", "-test.run", "TestTour|TestEachServiceHasAClient",
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(WAIT_S * 3):
            printed = (await process.communicate())[0].decode()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert process.returncode == 0, printed
    assert re.findall(r"^--- (\w+): (\w+)", printed, re.MULTILINE) == [
        ("PASS", "TestTour"),
        ("PASS", "TestEachServiceHasAClient"),
    ]
    assert (root / "hello.txt").read_text() == "Hello, whoever you are.\n"


# ---- The fold


def drawn() -> Iterator[Event]:
    """What may happen in a run, told as an executor does, with snapshots in between."""
    draw = random.Random(1)
    executor = Executor()
    yield from executor.snapshot(2)
    for at in range(600):
        yield from step(executor, draw.randrange(11), draw.randrange(10))
        if at % 25 == 0:
            yield from executor.snapshot(draw.randrange(1, 4))
    yield from written(executor)


def written(executor: Executor) -> Iterator[Event]:
    """The kinds that are left: what a session shows, plans, long bodies, calls in parts."""
    event = executor.event
    yield from step(executor, 5, 7)
    for delta in (
        {"append_content": "Wait 😀 <set"},
        {"take_back": {"chars": 5}},
        {"begin_call": {"name": "set"}},
        {"grow_call": {"arguments": '{"path": '}},
        {"grow_call": {"arguments": '"a"}'}},
        {"grow_call": {"index": 7, "arguments": "of no call"}},
        {"end_call": {}},
        {"begin_call": {"index": 1, "name": "sh"}},
        {"take_back": {"chars": 400, "calls": 1}},
        {"merge_extra": '{"a": [1], "b": null, "extra": 3}'},
        {"merge_extra": "no JSON"},
        {"add_citation": "null"},
        {"set_usage": {"prompt_tokens": 9, "cost_usd": 0.25}},
        {"set_usage": {"prompt_tokens": 4, "completion_tokens": 2}},
        {},
    ):
        yield event(stream_delta=event_pb2.StreamDelta(turn=7, deltas=[delta_pb2.Delta(**delta)]))
    for scheme in ("assistant", "log"):
        path = f"{scheme}://9"
        yield event(
            message_added=event_pb2.MessageAdded(
                entry=entry_pb2.Entry(path=path, scheme=scheme, body="ä", hash="h", body_size_bytes=2)
            )
        )
        for offset, text in ((2, "b"), (3, "ä" * 9000), (4, "after a gap"), (18_003, "")):
            yield event(
                output_appended=event_pb2.OutputAppended(
                    path=path, offset=offset, text=text, write_count=2, revision=offset
                )
            )
    yield event(output_appended=event_pb2.OutputAppended(path="log://of/nothing", text="x"))
    yield event(messages_truncated=session_event_pb2.MessagesTruncated(paths=["log://9", "assistant://7"]))
    yield event(thread_updated=session_event_pb2.ThreadUpdated(settings={"model": "m"}))
    yield event(
        run_state=event_pb2.RunState(run={"run": "r", "title": "A title", "state": session_pb2.SESSION_STATE_PAUSED})
    )
    yield event(runtime_updated=event_pb2.RuntimeUpdated(state=session_pb2.SESSION_STATE_PAUSED, compression={}))
    yield event(pause_required=session_event_pb2.PauseRequired(reasons=[{}]))
    yield event(draft_updated=session_event_pb2.DraftUpdated(text="", usage={}))
    yield event(queue_updated=session_event_pb2.QueueUpdated(commands=[{}, {}]))
    for plan_id in ("b", "a", "b"):
        yield event(plan_updated=plan_pb2.Plan(plan_id=plan_id, version=executor.seq))
    yield event(plan_removed="b")
    yield event(plan_updated=plan_pb2.Plan(plan_id="b"))
    yield event(legacy_plan=event_pb2.LegacyPlan(items=[{}]))
    yield event(runtime_updated=event_pb2.RuntimeUpdated(state=session_pb2.SESSION_STATE_IDLE))
    yield event(draft_updated=session_event_pb2.DraftUpdated())
    yield Event(cursor=cursor_pb2.EventCursor(epoch="e", seq=executor.seq))
    yield from executor.snapshot(1)


def state_of(view: RunView) -> event_pb2.Snapshot:
    """The state as a snapshot of one part, as TestFold writes it."""
    state = event_pb2.Snapshot(
        run=view.run, state=view.state, entries=sorted(view.timeline(), key=lambda one: (one.position, one.path)),
        proposals=[view.proposals[path] for path in sorted(view.proposals)], plans=view.held.plans.values(),
        queue=view.queue, draft=view.draft, draft_usage=view.draft_usage, pause_reasons=view.pause_reasons,
        compression=view.compression,
    )  # fmt: skip
    if view.held.legacy is not None:
        state.legacy_plan.items.extend(view.held.legacy)
    if view.partial:
        reply, partial = view.partial.reply, state.partial
        partial.turn, partial.content, partial.reasoning = view.partial.turn, reply.text, reply.thoughts
        partial.message.CopyFrom(message_to_pb(reply.message()))
        if reply.usage != Usage():
            partial.usage.CopyFrom(usage_to_pb(reply.usage))
    return state


async def test_the_fold_in_go_is_that_of_the_executor(tmp_path):
    events = list(drawn())
    (tmp_path / "events").write_bytes(executor_service_pb2.EventBatch(events=events).SerializeToString())
    ran = subprocess.run(  # noqa: ASYNC221 - nothing else is under way
        [compiled(), "-test.v", "-test.run", "TestFold"], capture_output=True, text=True, check=False, timeout=WAIT_S,
        env=os.environ | {"TOUR_EVENTS": str(tmp_path / "events"), "TOUR_STATES": str(tmp_path / "states")},
    )  # fmt: skip
    assert "--- PASS: TestFold" in ran.stdout, ran.stdout + ran.stderr
    states = executor_service_pb2.EventBatch.FromString((tmp_path / "states").read_bytes()).events
    view = RunView()
    for event, found in zip(events, states, strict=True):
        view.apply(event)
        assert found.snapshot == state_of(view), event
        assert found.cursor == (view.cursor or cursor_pb2.EventCursor())
    kinds = {event.WhichOneof("event") for event in events}
    assert kinds >= {"snapshot", "stream_delta", "output_appended", "plan_removed", "legacy_plan", "draft_updated"}


# ---- The release


async def test_the_module_is_formatted_and_nothing_about_it_is_suspicious():
    assert not subprocess.run(["gofmt", "-l", "."], cwd=MODULE, capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221
    go("vet", "./...")
    go("test", "./...")


async def test_whoever_gets_the_module_of_a_tag_gets_the_stubs_with_it(tmp_path):
    """As `go get` finds them: in a repository with a tag for each, without the `replace` of whoever works on it."""
    repository, program = tmp_path / "repository", tmp_path / "program"
    for folder in (MODULE, STUBS):
        shutil.copytree(folder, repository / folder.relative_to(REPO))
    tags = [f"{folder.relative_to(REPO)}/v{__version__}" for folder in (MODULE, STUBS)]
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "x"], *(["tag", tag] for tag in tags)):
        subprocess.run(["git", *command], cwd=repository, check=True)  # noqa: ASYNC221
    page = (REPO / "docs/clients/go.md").read_text()
    program.mkdir()
    (program / "main.go").write_text(re.search(r"^```go main.go\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1])
    gets = re.search(r"go mod init client && (?:go )?(get \S+)", page)
    environment = {
        "GOPRIVATE": "github.com/turnwright", "GOFLAGS": "-mod=mod -modcacherw", "GONOSUMDB": "*",
        # What others have published is here already: the tests above are built of it.
        "GOPROXY": f"file://{go('env', 'GOMODCACHE').strip()}/cache/download", "GOMODCACHE": str(tmp_path / "modules"),
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.file://{repository}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/turnwright/turnwright",
    }  # fmt: skip
    go("mod", "init", "client", folder=program, **environment)
    go(*gets[1].split(), folder=program, **environment)
    # It is compiled elsewhere: here each package that it is made of must be found.
    found = go("list", "-deps", ".", folder=program, **environment).split()
    assert "github.com/turnwright/turnwright/gen/go/turnwright/executor/v1" in found
    required = (program / "go.mod").read_text()
    for module in (MODULE, STUBS):
        assert f"github.com/turnwright/turnwright/{module.relative_to(REPO)} v{__version__}" in required
    assert f'const Version = "{__version__}"' in (MODULE / "watch.go").read_text()
    release = (REPO / ".github/workflows/release.yaml").read_text()
    assert all(f"{folder.relative_to(REPO)}/$GITHUB_REF_NAME" in release for folder in (MODULE, STUBS))
