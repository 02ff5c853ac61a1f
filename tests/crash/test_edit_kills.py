"""An executor is killed around the packet of a turn whose prompt a plugin edits: what is stored is sent, and told.

The plugin edits each prompt in another way, so that nothing but the stored packet has the bytes that were sent before.
Row OM31; architecture 11.
"""

import json
import re

import pytest
from turnwright.types.v1 import model_pb2, settings_pb2
from turnwright_values.types import Tier

from contract.store.harness import SECRET, act
from contract.store.harness import Client as StoreClient
from crash.stack import ENDURING, insisted, started
from sse_server import SseServer
from strict_vendors import STRICT, Reply
from turnwright_client import Client

POINTS = {"before packet 1": 2, "after packet 1": 1, "amid generate 1": 1, "after write 1": 1, "before shell 1": 1}
"""Where the executor ends in the first turn of a loop, and how often its prompt is edited then."""

ASSEMBLIES = {"transcript": settings_pb2.ASSEMBLY_TRANSCRIPT, "packet": settings_pb2.ASSEMBLY_PACKET}
EDIT = re.compile(r"edit (\d+)\.")
CALL = ("sh", {"command": "echo 1"})


async def loop_through(stack, point, number, assembly):
    """A loop whose first owner ends at a point, and its turns."""
    first, second = (life for life in stack.lives.values() if life.service == "executor")
    for life in (first, second):
        if life.process:
            life.kill()
    first.start(point)
    async with Client.connect(stack.at(first.name), SECRET) as client:
        await insisted(client.list_models)
        if number == 1:
            await client.set_model(model_pb2.Model(alias="m", vendor_model="openai/gpt-x", context_length=100_000))
    first.count()
    store = StoreClient(stack.at("store0"), tier=Tier.SYSTEM)
    task = {"project": stack.project, "run": "r", "prompt": f"Do it {number}."}
    native = settings_pb2.RunSettings(calls=settings_pb2.CALL_STYLE_NATIVE) if number == 1 else None
    await store.call(
        "EnqueueLoop", **task, settings=act(model="m", yolo=True, no_repo=True, assembly=assembly), run_settings=native
    )
    await store.close()
    assert await first.ended(within_s=60), f"the executor did not come to: {point}"
    second.start("last")
    async with Client.connect(stack.at(second.name), SECRET, policy=ENDURING) as client:
        loop = await insisted(lambda: client.wait_loop(stack.project, "r", number))
        run = await insisted(lambda: client.get_run(stack.project, "r", turns_max=100))
    assert loop.status == 200, loop.reason
    return sorted((turn for turn in run.turns if turn.loop == number), key=lambda turn: turn.number)


def is_answered(body):
    """Whether the call of this loop has been answered: in a transcript behind it, in a packet in its log."""
    messages = body["messages"]
    begun = re.search(r"prompt://(\d+)", messages[1]["content"])
    in_log = begun and f"log://turn_{begun[1]}/sh/" in messages[1]["content"]
    return in_log or messages[-2]["role"] == "tool"


def edits_in(body):
    """The numbers of the edits in a request."""
    return EDIT.findall(json.dumps(body["messages"]))


@pytest.mark.asyncio
@pytest.mark.parametrize("assembly", ["transcript", pytest.param("packet", marks=pytest.mark.soak)])
async def test_the_stored_packet_is_sent_with_its_edits_wherever_the_executor_is_killed(tmp_path, assembly):
    # OM28, OM31
    def script(number):
        return Reply("All is done.") if is_answered(vendor.bodies[number]) else Reply("I call.", [CALL])

    vendor = STRICT["chat"](script)
    calls = tmp_path / "home" / "edits"
    async with (
        SseServer([vendor] * 100) as server,
        started(tmp_path, openai_base_url=server.url, prompt="crash.counting_editor:register") as stack,
    ):
        for number, (point, times) in enumerate(POINTS.items(), 1):
            begun, before = len(vendor.bodies), calls.stat().st_size if calls.exists() else 0
            turns = await loop_through(stack, point, number, ASSEMBLIES[assembly])
            # Each request has the edit of its own turn, and no trace of those of others.
            sent = [edits_in(body) for body in vendor.bodies[begun:]]
            assert [len(found) for found in sent] == [1] * len(sent), point
            told = [edit.append.parts[0].text for turn in turns for edit in turn.result.edits]
            assert [f"edit {one}." for one in dict.fromkeys(found[0] for found in sent)] == told, point
            assert len(told) == len(turns) == 2, point
            # Called again for a packet that was lost, never for one that is stored.
            assert calls.stat().st_size - before == times + 1, point
    assert vendor.refusals == []
    assert stack.complaints() == {}
