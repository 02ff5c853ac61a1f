"""What waits to be written, and what is read ahead of the commands that ask for it."""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024


async def test_long_entries_that_a_turn_names_do_not_get_in_each_others_way(bench) -> None:
    names = [f"known://{number}" for number in range(6)]
    for name in names:
        await bench.put(name, name[-1] * 12 * MIB)
    bench.entries.foresee(names)
    for name in names:
        assert (await bench.entry(name)).body == name[-1] * 12 * MIB


async def test_what_was_read_ahead_is_read_again_after_a_write(bench) -> None:
    await bench.put("known://a", "one")
    await bench.put("known://b", "one")
    bench.entries.foresee(["known://a", "known://b"])
    assert (await bench.entry("known://a")).body == "one"
    await bench.put("known://b", "two")
    assert (await bench.entry("known://b")).body == "two"


async def test_what_is_written_while_it_is_read_ahead_is_not_hidden_by_it(bench) -> None:
    await bench.put("known://a", "one")
    bench.entries.foresee(["known://a"])
    for number in range(20):
        await asyncio.gather(bench.entries.get(["known://a"]), bench.put("known://a", str(number)))
        assert (await bench.entry("known://a")).body == str(number)
