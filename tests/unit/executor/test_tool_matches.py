"""How many entries one pattern is about: all of them, or the command says so. Rows RU150, RU167, RU259."""

import pytest
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier, Visibility

from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.command_record import Done
from turnwright_executor.tools.registry import build_tools
from turnwright_executor.web.web import HttpWeb

pytestmark = pytest.mark.asyncio(loop_scope="module")

FEW = build_tools(ExecutorSettings(matches_max=3), HttpWeb(ExecutorSettings()))
ACTING = [
    '<get path="known://*"/>',
    '<get path="known://*">fact</get>',
    '<set path="known://*" visibility="archived"/>',
    '<rm path="known://*"/>',
    '<cp path="known://*" to="unknown://"/>',
    '<mv path="known://*" to="unknown://"/>',
]


async def put_many(bench, pattern: str, count: int) -> None:
    """So many entries of short text, summarized."""
    change = SetEntry("fact", visibility=Visibility.SUMMARIZED, state=State.RESOLVED)
    await bench.entries.write([EntryWrite(pattern.format(number), change, Tier.PLUGIN) for number in range(count)])


@pytest.mark.parametrize("command", ACTING)
async def test_a_command_over_more_than_its_limit_does_nothing_and_says_so(bench, command):
    bench.tools = FEW
    await put_many(bench, "known://{}", 4)
    before = await bench.view()
    done = await bench.run(command)
    assert done.outcome == "too_large:413"
    assert "known://* stands for more than 3 entries" in done.body
    assert await bench.view() == before


@pytest.mark.parametrize("command", ACTING)
async def test_a_command_over_as_many_as_its_limit_is_carried_out(bench, command):
    bench.tools = FEW
    await put_many(bench, "known://{}", 3)
    before = await bench.view()
    assert (await bench.run(command)).state is State.RESOLVED
    assert await bench.view() != before


async def test_a_listing_says_that_there_is_more(bench):
    await put_many(bench, "known://{:04}", 1001)
    done = await bench.prepare('<get path="known://*" preview/>')
    assert isinstance(done, Done)
    lines = done.body.splitlines()
    assert (len(lines), lines[999]) == (1001, "* known://0999 - 2 tokens")
    assert lines[1000] == "... and more than are listed here; use a narrower pattern"


async def test_files_are_found_behind_many_records_with_such_names(bench):
    await put_many(bench, "log://turn_1/get/{}.py", 1001)
    await bench.file("src/z.py", "x")
    assert (await bench.prepare('<get path="**/*.py" preview/>')).body == "* src/z.py - 1 tokens"
