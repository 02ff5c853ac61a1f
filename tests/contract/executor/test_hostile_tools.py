"""Servers of tools that misbehave, in a process of their own: what a call comes to, and that its run goes on."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from turnwright.catalogues.v1 import catalogue_service_pb2
from turnwright.types.v1 import settings_pb2

from contract.executor.proposing import DONE

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

HOSTILE = Path(__file__).parent / "hostile_tools.py"
LOST = "indeterminate:500"
LATE = "late gave no result within 1 s"


@pytest.fixture(scope="module")
def shared_database():
    return ""


@pytest.fixture(scope="module")
def shared_settings():
    return {"tool_hosts": "127.0.0.1"}


@pytest.fixture(scope="module")
def hostile():
    with serving() as address:
        yield address


@contextmanager
def serving() -> Iterator[str]:
    with subprocess.Popen([sys.executable, str(HOSTILE)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip()
        process.kill()


async def register(services, name: str, address: str, timeout_s: int = 60, **headers: str) -> None:
    timeout = Duration(seconds=timeout_s)
    server = catalogue_service_pb2.ToolServer(name=name, address=address, headers=headers, timeout=timeout)
    await services.client.add_tool_server(services.project, server)


CALLS = {
    "t.floods": ("", "done"),
    "late.silent": (LOST, LATE),
    "late.floods_for_ever": (LOST, LATE),
    "late.says_nothing_for_ever": (LOST, LATE),
    "t.huge": ("too_large:502", "more than 33554432 bytes at once. It may have had effects"),
    "t.without_a_result": (LOST, "without a result"),
    "t.an_empty_message": (LOST, "without a result"),
    "t.two_results": ("", "first"),
    "t.proposes_after_its_result": ("", "done"),
    "t.no_utf_8": (LOST, "something else than an event of a call"),
    "t.no_message": (LOST, "something else than an event of a call"),
    "t.half_of_a_pair": ("", '"a": "?"'),
    "t.nested": ("", "2098951 bytes in all"),
    "t.nested_too_deeply": ("", "2097152 bytes in all"),
    "t.many_parts": ("", "99936 more parts were left out"),
    "t.odd_parts": ("", "An image of 9437184 bytes"),
    "t.an_odd_status": ("tool:500", "what?"),
    "t.starts_again": ("unavailable:503", "has named 3 starts for one call"),
    "t.work": ("", "done"),
}
"""What each call comes to, and words that the model reads."""


async def test_each_call_comes_to_an_end_that_is_told(shared_services, hostile):
    services = shared_services
    await register(services, "t", hostile)
    await register(services, "late", hostile, timeout_s=1)
    calls = [f"=== call name={name.replace('.', '__')} ===\n{{}}" for name in CALLS]
    services.script("\n".join(calls), DONE)
    native = settings_pb2.RunSettings(calls=settings_pb2.CALL_STYLE_NATIVE)
    wanted = settings_pb2.LoopSettings(model="m", yolo=True)
    queued = await services.client.act(services.project, "Go.", run="r", settings=wanted, run_settings=native)
    assert (await services.until(queued)).status == 200
    paths = {name: f"log://turn_1/result/{name}/{number}" for number, name in enumerate(CALLS, 1)}
    records = {name: await services.entry(path) for name, path in paths.items()}
    assert {name: record.outcome for name, record in records.items()} == {
        name: outcome for name, (outcome, _) in CALLS.items()
    }
    assert {name: record.body for name, record in records.items() if CALLS[name][1] not in record.body} == {}
    flood = await services.entry("result://turn_1/t.floods/1_1")
    assert flood.body == "x" * 5000


async def test_a_call_whose_server_leaves_while_a_model_is_asked_has_begun(shared_services):
    services = shared_services
    with serving() as address:
        await register(services, "leaves", address)
        services.script("=== call name=leaves__asks_and_leaves ===\n{}", DONE)
        native = settings_pb2.RunSettings(calls=settings_pb2.CALL_STYLE_NATIVE)
        wanted = settings_pb2.LoopSettings(model="m", yolo=True)
        queued = await services.client.act(services.project, "Go.", run="leaves", settings=wanted, run_settings=native)
        assert (await services.until(queued)).status == 200
    record = await services.entry("log://turn_1/result/leaves.asks_and_leaves/1", run="leaves")
    assert record.outcome == LOST, record.body
    await services.client.remove_tool_server(services.project, "leaves")


LISTS = {
    "no message": (0, "answers something else than the contract"),
    "a huge list": (0, "larger than max"),
    "a long list": (1000, "t2.tool_999: The tools before it take the 2097152 bytes that one server has."),
    "schemas": (6, "t3.half: Its schema has half of a surrogate pair"),
    "names": (11, "Its name has 1048576 characters"),
}
"""How many tools are told of each, and words about what is wrong."""


async def test_each_list_is_cut_or_refused_and_the_loop_begins(shared_services, hostile):
    services = shared_services
    for number, kind in enumerate(LISTS):
        await register(services, f"t{number}", hostile, list=kind)
    services.script(DONE)
    assert (await services.until(await services.act())).status == 200
    answer = await services.client.list_tools(services.project)
    found = {kind: state.tools for kind, state in zip(LISTS, answer.servers, strict=True)}
    assert found == {kind: tools for kind, (tools, _) in LISTS.items()}
    offered = {tool.name for tool in answer.tools if tool.offered}
    assert {"t2.tool_0", "t3.work", "t4.work"} <= offered
    problems = {kind: f"{state.problem} {state.problems}" for kind, state in zip(LISTS, answer.servers, strict=True)}
    problems["a long list"] += "".join(f"{tool.name}: {tool.problem}" for tool in answer.tools)
    assert {kind: words for kind, words in problems.items() if LISTS[kind][1] not in words} == {}
