"""The connections to other executors: some are kept, and none is closed by which somebody is called."""

from __future__ import annotations

import pytest

from turnwright_core.rpc.certificates import Tls
from turnwright_executor.peers.owners import CHANNELS_MAX, Owners

pytestmark = pytest.mark.asyncio


async def called(owners: Owners, address: str) -> None:
    async with owners.connected(address):
        pass


async def test_the_connections_used_last_are_kept_and_all_that_are_in_use(tmp_path) -> None:
    owners = Owners(None, lambda _: False, Tls())
    others = [f"unix:{tmp_path}/{number}" for number in range(CHANNELS_MAX + 2)]
    async with owners.connected("unix:watched"):
        for address in others:
            await called(owners, address)
        assert list(owners._channels) == ["unix:watched", *others[3:]]
    await called(owners, others[-1])
    await called(owners, f"unix:{tmp_path}/another")
    assert list(owners._channels) == [*others[3:], f"unix:{tmp_path}/another"]
    assert not owners._used
    await owners.close()
