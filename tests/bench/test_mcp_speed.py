"""Our share of a call of an MCP tool: by the process that calls servers beside the official SDK alone, in pairs."""

from __future__ import annotations

import statistics
import sys
import time

import pytest
from mcp import Client, StdioServerParameters

from contract.mcp.bridging import HOSTILE, bridging, hostile, text

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(600)]

PAIRS = 15
CALLS = 100
SHARE_MS = 1.5


async def test_a_call_beside_one_of_the_sdk(tmp_path):
    """The executor's end of the call is in ours: both stand in one process."""
    server = StdioServerParameters(command=sys.executable, args=[str(HOSTILE), "well"])
    pairs = []
    async with bridging(tmp_path) as bridge, Client(server) as sdk:
        registration = hostile("well")

        async def ours() -> None:
            assert text(await bridge.dispatch(registration)) == "done"

        async def alone() -> None:
            assert (await sdk.call_tool("work", {})).content[0].text == "done"

        await ours()
        for number in range(PAIRS):
            taken = {}
            # Each comes first in half of the pairs.
            for call in (ours, alone) if number % 2 else (alone, ours):
                begin_s = time.process_time()
                for _ in range(CALLS):
                    await call()
                taken[call] = (time.process_time() - begin_s) / CALLS * 1000
            pairs.append((taken[ours], taken[alone]))
    low, share_ms, high = statistics.quantiles([one - other for one, other in pairs], n=4)
    ratio = statistics.median(one / other for one, other in pairs)
    sdk_ms = statistics.median(other for _, other in pairs)
    print(
        f"\na call by the SDK {sdk_ms:.2f} ms of CPU; ours {ratio:.1f} of that: {share_ms:.2f} ms more, "
        f"at most {SHARE_MS} (quartiles {low:.2f} to {high:.2f})"
    )
    assert ratio > 0
