"""An executor is killed at each step of a turn of a conversation, and another one goes on: no request is refused.

One run goes through all points, so that what each kill leaves stands in every later request. Issue 15; rows RL02, RL06.
"""

import pytest
from turnwright.types.v1 import model_pb2, settings_pb2
from turnwright_values.types import Tier

from contract.store.harness import SECRET, act
from contract.store.harness import Client as StoreClient
from crash.stack import ENDURING, insisted, started
from sse_server import SseServer, error
from strict_vendors import STRICT, Reply
from turnwright_client import Client

POINTS = (
    # The first loop alone has nothing to count by.
    "before count 1",
    "after claim 1", "after begin 1", "before assemble 1", "after assemble 1", "before packet 1", "after packet 1",
    "amid generate 1", "amid generate 3", "before write 1", "after write 1", "after write 2",
    "before shell 1", "after shell 1", "before shell 2", "before end 1", "after end 1", "after packet 2",
)  # fmt: skip
MODELS = {"anthropic": ("anthropic/claude-x", "anthropic_base_url"), "chat": ("openai/gpt-x", "openai_base_url")}
COUNTS = {"/v1/messages/count_tokens": error(404, "Not Found")}
TRANSCRIPT = settings_pb2.ASSEMBLY_TRANSCRIPT


def calls_once(vendor, number):
    """Calls of each kind, and text when they have been answered."""
    last = list(vendor.blocks(vendor.bodies[number]))[-1]
    block = last[-1] if isinstance(last, list) else last
    if block.get("type") == "tool_result" or block.get("role") == "tool":
        return Reply("All is done.")
    calls = [
        ("get", {"path": "none.txt"}), ("sh", {"command": "echo 1"}), ("set", {"path": f"known://{number}", "body": "b"}),
        ("sh", {"command": "echo 2"}),
    ]  # fmt: skip
    return Reply("I call.", calls)


async def loop_through(stack, point, number, model):
    """A loop whose first owner ends at a point; its status and reason."""
    first, second = (life for life in stack.lives.values() if life.service == "executor")
    for life in (first, second):
        if life.process:
            life.kill()
    first.start(point)
    async with Client.connect(stack.at(first.name), SECRET) as client:
        await insisted(client.list_models)
        if number == 1:
            await client.set_model(model_pb2.Model(alias="m", vendor_model=model))
    first.count()
    store = StoreClient(stack.at("store0"), tier=Tier.SYSTEM)
    task = {"project": stack.project, "run": "r", "prompt": f"Do it {number}."}
    await store.call("EnqueueLoop", **task, settings=act(model="m", yolo=True, assembly=TRANSCRIPT))
    await store.close()
    assert await first.ended(within_s=60), f"the executor did not come to: {point}"
    second.start("last")
    async with Client.connect(stack.at(second.name), SECRET, policy=ENDURING) as client:
        loop = await insisted(lambda: client.wait_loop(stack.project, "r", number))
    return loop.status, loop.reason


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("database", "name", "points"),
    [
        pytest.param("postgresql", "anthropic", POINTS[::4], id="sample"),
        pytest.param("postgresql", "anthropic", POINTS, marks=pytest.mark.soak, id="postgresql-anthropic"),
        pytest.param("sqlite", "chat", POINTS, marks=pytest.mark.soak, id="sqlite-chat"),
        pytest.param("sqlite", "anthropic", POINTS, marks=pytest.mark.soak, id="sqlite-anthropic"),
        pytest.param("postgresql", "chat", POINTS, marks=pytest.mark.soak, id="postgresql-chat"),
    ],
    indirect=["database"],
)
async def test_no_request_is_refused_wherever_an_executor_is_killed(tmp_path, database, name, points):
    model, setting = MODELS[name]
    vendor = STRICT[name](lambda number: calls_once(vendor, number))
    async with (
        SseServer([vendor] * 1000, pages=COUNTS) as server,
        started(tmp_path, database, **{setting: server.url}) as stack,
    ):
        ends = {point: await loop_through(stack, point, number, model) for number, point in enumerate(points, start=1)}
    assert vendor.refusals == []
    assert {point: end for point, end in ends.items() if end[0] != 200} == {}
    assert len(vendor.bodies) >= 2 * len(points)
