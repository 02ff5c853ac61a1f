"""A provider and an assembler written in Go, from the contract alone, in the place of ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from turnwright.types.v1 import model_pb2

from needs import needs
from services import Services, running
from turnwright_core.runs import COMPLETED

REPO = Path(__file__).parents[2]
SOURCES = REPO / "tests" / "polyglot" / "go_services"
SYSTEM = "Write files with <set>. End with <update>."
REPLIES = (
    '<set path="hello.txt">Grüße an alle.\n</set><update status="102">Writing it.</update>',
    '<update status="200">Written.</update>',
)
WAIT_S = 120

pytestmark = [
    needs("Go", "install golang-go", there=shutil.which("go")),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("go") / "services"
    subprocess.run(["go", "build", "-o", made, "."], cwd=SOURCES, check=True, timeout=600)
    return made


class Stranger:
    """What a service of another language was asked."""

    def __init__(self, heard: Path) -> None:
        self._heard = heard

    def requests(self, method: str) -> list[dict]:
        said = map(json.loads, self._heard.read_text().splitlines())
        return [one["request"] for one in said if one["method"] == method]


@contextlib.asynccontextmanager
async def in_place_of(stack: Services, name: str, program: Path, *arguments: str) -> AsyncIterator[Stranger]:
    """Stop the service of the stack, and serve at its address."""
    await stack.stop(name)
    heard = stack.root / f"{name}.jsonl"
    process = started([str(program), name, stack.addresses[name], *arguments], heard)
    try:
        async with asyncio.timeout(WAIT_S):
            while not await is_serving(stack.addresses[name]):
                assert process.poll() is None
                await asyncio.sleep(0.02)
        yield Stranger(heard)
    finally:
        process.terminate()
        process.wait()
        await stack.start(name)


def started(command: list[str], heard: Path) -> subprocess.Popen[bytes]:
    with heard.open("wb") as out:
        return subprocess.Popen(command, stdout=out)


async def is_serving(address: str) -> bool:
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
        writer.close()
        return True
    return False


@pytest_asyncio.fixture(loop_scope="module")
async def stack(tmp_path):
    async with running(tmp_path) as services:
        yield services


async def add_model(stack: Services) -> None:
    """A model of the vendor that the Go provider has."""
    await stack.client.set_model(model_pb2.Model(alias="m", vendor_model="fixed/m"))


def texts(call: dict) -> list[tuple[str, str]]:
    """The messages of a Generate, each with its role."""
    return [(one["role"], "".join(part["text"] for part in one["parts"])) for one in call["messages"]]


async def test_a_provider_in_go_answers_in_the_place_of_ours(stack, program):
    async with in_place_of(stack, "provider", program, *REPLIES) as provider:
        await add_model(stack)
        loop = await stack.until(await stack.act("Say hello."))
        assert loop.status == COMPLETED
        assert (stack.files / "hello.txt").read_text() == "Grüße an alle.\n"
        first, second = provider.requests("Generate")
        assert (first.get("call_index", 0), second["call_index"]) == (0, 1)
        assert "Say hello." in texts(first)[-1][1]
        checked = provider.requests("CheckModels")
        assert checked[0]["models"][0]["vendor_model"] == "fixed/m"
        turns = [turn async for turn in stack.client.list_turns(stack.project, "r")]
        assert [(turn.result.usage.prompt_tokens, turn.result.usage.completion_tokens) for turn in turns] == [
            (1234, 56)
        ] * 2
        assert {turn.request.context_length for turn in turns} == {8192}


async def test_an_assembler_in_go_answers_a_fixed_packet(stack, program):
    async with (
        in_place_of(stack, "assembler", program) as assembler,
        in_place_of(stack, "provider", program, *REPLIES) as provider,
    ):
        await add_model(stack)
        loop = await stack.until(await stack.act("Say hello."))
        assert loop.status == COMPLETED
        assert (stack.files / "hello.txt").read_text() == "Grüße an alle.\n"
        # The model read what the assembler made of it, whole and in order, and the store has it.
        for number, call in enumerate(provider.requests("Generate"), 1):
            user = f"Grüße für alle. This is turn {number}."
            assert texts(call) == [("ROLE_SYSTEM", SYSTEM), ("ROLE_USER", user)]
            stored = await stack.client.read_packet(stack.project, "r", number)
            assert [(role, "".join(pieces)) for role, pieces in stored] == [("system", SYSTEM), ("user", user)]
        first, second = assembler.requests("Assemble")
        assert (first["turn"], second["turn"]) == (1, 2)
        assert "base_digest" not in first
        assert second["base_digest"]
