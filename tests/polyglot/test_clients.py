"""The programs of docs/clients against a stack: directly, and through the edge with a certificate of their own.

Each starts a run, watches it to its end, accepts a proposal, is cut off in the middle of a reply and resumes by its cursor. Those that
`read_on` then read entries, branch on the reason of an error, and fork the run.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import re
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from turnwright.executor.v1 import executor_service_pb2
from turnwright.types.v1 import model_pb2

from edges import WAIT_S, Edge, edge
from polyglot.pages import GO, JAVA, PYTHON, RUST, Program, build
from proxy import proxied
from services import SECRET, running
from turnwright_client import Client
from turnwright_core.rpc.certificates import Tls
from wheels import CLIENT, ROOT, built, empty_environment

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1800)]

PROSE = ("Hello is what the file will say, and nothing else.", "It stands there now, so that anybody can read it.")
COMMANDS = (
    '<set path="hello.txt">Hello, whoever you are.\n</set><update status="102">Writing it.</update>',
    '<update status="200">Written.</update>',
)
SCRIPT = "".join(
    f"=== reply chunk_chars=4 delay_ms=15 ===\n{prose}\n{commands}\n"
    for prose, commands in zip(PROSE, COMMANDS, strict=True)
)


class Cursors(grpc.aio.ServerInterceptor):
    """After which event each watch begins."""

    def __init__(self) -> None:
        self.seen = []

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if not details.method.endswith("/WatchRun"):
            return handler

        async def watch(requests, context):
            await handler.stream_stream(requests, ReadBySomebody(context, self.saw))

        async def watch_of_operator(request, context):
            self.saw(request.SerializeToString())
            await handler.unary_stream(request, context)

        if handler.stream_stream:
            return grpc.stream_stream_rpc_method_handler(watch, response_serializer=handler.response_serializer)
        return grpc.unary_stream_rpc_method_handler(
            watch_of_operator, handler.request_deserializer, handler.response_serializer
        )

    def saw(self, message):
        request = executor_service_pb2.WatchRunRequest.FromString(message)
        self.seen.append((request.run, request.after.epoch, request.after.seq))


class ReadBySomebody:
    """The context of a client's call: the guard itself reads its message, once the client may have another call under way."""

    def __init__(self, context, saw) -> None:
        self._context, self._saw = context, saw

    async def read(self):
        message = await self._context.read()
        self._saw(message)
        return message

    def __getattr__(self, name):
        return getattr(self._context, name)


@dataclass
class Way:
    """How programs come to the stack: plaintext to an executor, or by the edge, which wants a certificate."""

    root: Path
    address: str
    client: Client
    cursors: Cursors
    edge: Edge | None = None


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["direct", "edge"])
async def way(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "m.txt").write_text(SCRIPT)
    cursors = Cursors()
    roots = str(folder)
    async with running(folder, [cursors], client_roots=roots) as services:
        await services.client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
        if request.param == "direct":
            yield Way(folder, services.addresses["executor"], services.client, cursors)
            return
        async with edge(services, observers=[cursors], client_roots=roots) as at:
            tls = Tls(authorities=at.authority.file)
            async with Client.connect(at.address, SECRET, 60, tls=tls) as client:
                yield Way(folder, at.mutual, client, cursors, at)


@functools.cache
def alone() -> Path:
    """Where the programs are of an environment with the client's wheel, and nothing of the services."""
    folder = Path(tempfile.mkdtemp(prefix="turnwright-client-"))
    atexit.register(shutil.rmtree, folder)
    return empty_environment(folder / "empty", built("wheel", ROOT / CLIENT, folder))


def language(program: Program, *marks: pytest.MarkDecorator):
    skipped = pytest.mark.skipif(bool(program.missing()), reason=program.missing() or "nothing is missing")
    return pytest.param(program, id=program.name, marks=[skipped, *marks])


@pytest.mark.parametrize(
    "program",
    [
        language(PYTHON),
        language(GO),
        language(JAVA, pytest.mark.polyglot),
        language(RUST, pytest.mark.polyglot),
    ],
)
async def test_a_program_of_the_documentation_works_and_survives_a_cut(way, program):
    await asyncio.to_thread(build, program)
    root = way.root / program.name
    root.mkdir()
    # The page's commands name what a fresh home has; here they name what stands in this stack.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if program is PYTHON:
        path = f"{alone()}{os.pathsep}{path}"
    environment = os.environ | program.environment | {"PATH": path}
    if way.edge:
        own = way.edge.clients.issue(way.root / f"{program.name}.tls")
        environment |= {
            "TURNWRIGHT_TLS_CA": str(way.edge.authority.file),
            "TURNWRIGHT_TLS_CERT": f"{own}/cert.pem",
            "TURNWRIGHT_TLS_KEY": f"{own}/key.pem",
        }
    async with proxied(way.address, is_opaque=bool(way.edge)) as proxy:
        values = {
            "http://": "https://" if way.edge else "http://",
            "127.0.0.1:7440": proxy.address,
            "$(cat ~/.local/share/turnwright/token)": SECRET,
            '"$PWD"': str(root),
            "scripted/hello": "m",
        }
        commands = re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], program.run)
        assert all(value in commands for value in (proxy.address, str(root), " m "))
        process = await asyncio.create_subprocess_exec(
            "bash", "-euc", commands, cwd=program.folder, env=environment, start_new_session=True,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout
        assert process.stderr
        printed = b""
        is_cut = False
        try:
            async with asyncio.timeout(WAIT_S):
                while read := await process.stdout.read(65536):
                    printed += read
                    if not is_cut and b"Hello" in printed:
                        is_cut = True
                        proxy.reset()
                assert (await process.wait(), (await process.stderr.read()).decode()) == (0, "")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    await finished(way, root, printed.decode(), reads_on=program.reads_on)
    if program is PYTHON:
        assert re.search(rb"^\[done with [1-9]\d* tokens\]$", printed, re.MULTILINE)
        assert re.search(rb"^ENTRY_NOT_FOUND: \D+$", printed, re.MULTILINE)
    await resumed(way, root)


async def finished(way, root, printed, *, reads_on=True):
    """What was printed and what is there now."""
    for prose in PROSE:
        assert printed.count(prose) == 1, printed
    assert not re.search("<set|<update", printed)
    assert len(re.findall(r"^\[accepting \S+hello.txt\]$", printed, re.MULTILINE)) == 1
    assert "\n[200] Written.\n" in printed
    if reads_on:
        assert re.search(r"^200 \S*hello.txt$", printed, re.MULTILINE)
        assert "\n[nothing concluded]\n" in printed
        forked = re.search(r"^\[(\S+) is a fork of (\S+)\]$", printed, re.MULTILINE)
        assert forked
        fork = await way.client.get_run(root.name, forked[1])
        assert fork.run.forked_from.run == forked[2]
    assert (root / "hello.txt").read_text() == "Hello, whoever you are.\n"


async def resumed(way, root):
    # The watch goes on behind an event that was seen. Once the proposal is decided, another executor may have the run, with a history of its own.
    [alias] = [run.run async for run in way.client.list_runs(root.name) if not run.HasField("forked_from")]
    (first, began), *later = [(epoch, seq) for run, epoch, seq in way.cursors.seen if run == alias]
    assert any(epoch == first and seq > began for epoch, seq in later)
