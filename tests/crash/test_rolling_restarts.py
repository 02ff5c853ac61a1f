"""Services are replaced one after the other, as a rollout does it, while runs with counted effects go on.

Clients repeat what their retry policy covers (UNAVAILABLE and the like, under the same request id) and see no other
error. Nothing is lost, and nothing happens twice.
"""

import asyncio
import contextlib
import itertools

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from crash.stack import Stack
from crash.test_executor_kills import Matrix
from release_before import installed

READY_S = 300


class Rollout(Matrix):
    """Replacements on a stack, one process at a time."""

    async def roll(self, steps):
        """Have workers work while each of the steps replaces a service."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(worker.work(stop))
            for step in steps:
                await step()
                await self._progress()
            stop.set()

    async def _progress(self):
        """Wait until more tasks have ended: each process has done some of the work."""
        before = self._ended()
        async with asyncio.timeout(READY_S):
            while self._ended() == before:  # noqa: ASYNC110 - workers tell nobody
                await asyncio.sleep(0.05)

    def _ended(self):
        return sum(len(worker.ends) for worker in self.workers)

    async def finish(self):
        """The account: nothing was lost or doubled. Returns the number of tasks, and of effects that are in doubt."""
        tasks, unknown = await self.account()
        assert self.stack.complaints() == {}
        return tasks, unknown


async def ready(address):
    """Wait until the service at an address is ready, as a rollout does before it goes on."""
    async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(READY_S):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return
            await asyncio.sleep(0.05)


async def replace(stack, old, new):
    """End a service, and go on when the next one at its address is ready."""
    await old.stop()
    new.start()
    await ready(stack.at(new.name))


async def restart_and_account(folder, db, restarts, runs, lease_s):
    """How many effects are in doubt."""
    stack = Stack(folder, db, executors=2, stores=2, lease_s=lease_s, lease_grace_s=1)
    try:
        await stack.start()
        rollout = Rollout(stack, runs)
        lives = itertools.islice(itertools.cycle(stack.lives.values()), restarts)
        await rollout.roll([lambda life=life: replace(stack, life, life) for life in lives])
        tasks, unknown = await rollout.finish()
        print(f"{restarts} restarts under {runs} runs: {tasks} tasks, {unknown} effects in doubt")
        return unknown
    finally:
        stack.close()


@pytest.mark.asyncio
async def test_nothing_is_lost_or_doubled_or_in_doubt_while_each_service_is_replaced(tmp_path, postgres_url):
    # Commands come to their end before an executor does; a mark whose effect has not started is taken back.
    assert await restart_and_account(tmp_path, postgres_url, restarts=6, runs=16, lease_s=20) == 0


@pytest.mark.soak
@pytest.mark.asyncio
@pytest.mark.timeout(3600)
async def test_nothing_is_lost_or_doubled_in_50_restarts_under_32_runs(tmp_path, postgres_url):
    # With leases of 6 seconds, executors that get no CPU for so long lose some in the middle of a command.
    assert await restart_and_account(tmp_path, postgres_url, restarts=50, runs=32, lease_s=20) == 0


# ---- The release before and this one, side by side


@pytest.fixture(scope="module")
def release_before(tmp_path_factory):
    with installed(tmp_path_factory.mktemp("before")) as found:
        yield found


@pytest.mark.soak
@pytest.mark.asyncio
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_back", [False, True], ids=["upgrade", "rollback"])
async def test_the_release_before_and_this_one_share_a_database_while_runs_go_on(
    tmp_path, postgres_url, release_before, is_back
):
    """Services are replaced one by one, as the run book says: at each moment some are of one release, some of the other."""
    (tmp_path / "stack").mkdir()
    stack = Stack(
        tmp_path / "stack", postgres_url, executors=2, stores=2, before=release_before, lease_s=6, lease_grace_s=1
    )
    old, new = (stack.lives, stack.before) if is_back else (stack.before, stack.lives)
    try:
        await stack.start(old)
        rollout = Rollout(stack, 8)
        await rollout.roll([lambda name=name: replace(stack, old[name], new[name]) for name in old])
        tasks, unknown = await rollout.finish()
        # Executors of the release before do not wait for commands in progress.
        print(f"{tasks} tasks, {unknown} effects in doubt")
    finally:
        stack.close()
