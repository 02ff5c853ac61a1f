"""A model with a small window has all tools and room for work. Rows RU122, RU181, RU212, RU256; decision C31."""

from __future__ import annotations

import json

import pytest
from turnwright.types.v1 import settings_pb2

from turnwright_core.tools import TOOL_ORDER

pytestmark = pytest.mark.asyncio

WINDOW = 8192
DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
EDIT = "<<SEARCH\nline 7 of it\nSEARCH\n<<REPLACE\nline seven\nREPLACE"


async def worked(services, window: int):
    """A yolo loop with a window of so many tokens, to its end."""
    limits = settings_pb2.RunSettings(model="m", context_limit=window)
    wanted = settings_pb2.LoopSettings(model="m", yolo=True)
    queued = await services.client.act(services.project, "Mend it.", run="r", settings=wanted, run_settings=limits)
    return await services.until(queued)


async def is_brief(services) -> bool:
    return json.loads((await services.entry("instructions://system")).attributes_json).get("brief", False)


async def test_a_window_of_8192_tokens_holds_all_tools_and_a_task_of_several_turns(services) -> None:
    (services.files / "b.txt").write_text("".join(f"line {number} of it\n" for number in range(100)))
    services.script(
        f'<get path="**" preview/>{GO_ON}',
        f'<get path="b.txt"/><set path="known://b">b.txt has a hundred lines.</set>{GO_ON}',
        f'<set path="b.txt">{EDIT}</set>{GO_ON}',
        f"<sh>grep -n seven b.txt</sh>{GO_ON}",
        DONE,
    )
    loop = await worked(services, WINDOW)
    turns = (await services.client.get_run(services.project, "r", turns_max=9)).turns
    failed = [entry.path async for entry in services.client.list_entries(services.project, "r") if entry.outcome]
    assert (loop.status, len(turns), failed) == (200, 5, [])
    assert all(set(TOOL_ORDER) - set(turn.request.tools) == {"search"} for turn in turns)
    assert len({(await services.entry(f"system://{turn.number}")).body for turn in turns}) == 1
    assert "line seven" in (services.files / "b.txt").read_text()


@pytest.mark.parametrize(("window", "brief"), [(16_383, True), (16_384, False)])
async def test_texts_are_brief_below_a_window_and_whole_from_it_on(services, window, brief) -> None:
    services.script(DONE)
    await worked(services, window)
    assert await is_brief(services) is brief
