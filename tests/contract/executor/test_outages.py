"""What a loop makes of a store that does not answer for a moment: it goes on, and what it knows is not forgotten."""

import grpc
import pytest

from services import running
from turnwright_core.errors import Reason, fault
from turnwright_kit.errors import abort

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">All is done.</update>'
WRITES = ("WriteEntries", "EndTurn")


class Refusing(grpc.aio.ServerInterceptor):
    """Refuses so many writes of a store once a file is there."""

    def __init__(self, file, reason, times):
        self.file = file
        self.reason = reason
        self.times = times

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if details.method.rpartition("/")[2] not in WRITES or not self.times or not self.file.exists():
            return handler
        self.times -= 1

        async def refuse(_request, context):
            await abort(context, fault(self.reason, "Not now."))

        return grpc.unary_unary_rpc_method_handler(
            refuse,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


@pytest.mark.parametrize(
    ("reason", "times"), [(Reason.DATABASE_UNAVAILABLE, 2), (Reason.QUEUE_FULL, 3)], ids=["away", "busy"]
)
async def test_what_came_of_an_effect_is_reported_once_the_store_is_back(tmp_path, monkeypatch, reason, times):
    """architecture 11: whoever carried it out is still there, so it is not indeterminate."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    effects = tmp_path / "project" / "effects.txt"
    refusing = Refusing(effects, reason, times)
    async with running(tmp_path, [refusing]) as services:
        services.script(f"<sh>echo a >> effects.txt</sh><sh>echo b >> effects.txt</sh>{DONE}")
        loop = await services.until(await services.act())
        records = [entry for entry in services.view().entries.values() if entry.path.startswith("log://turn_1/sh/")]
        told = [(entry.status, "exit=0" in entry.body) for entry in records]
    assert (refusing.times, loop.status, loop.turns) == (0, 200, 1)
    assert (effects.read_text().split(), told) == (["a", "b"], [(200, True)] * 2)
