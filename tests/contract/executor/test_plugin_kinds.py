"""Plugins of several kinds in all services at once. Rows RU043, RU121, RU145, RU148."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from turnwright_values.types import Tier

from services import running
from turnwright_assembler.sections.plugin_sections import RENDER_VERSION
from turnwright_core.schemes import BY_NAME

pytestmark = pytest.mark.asyncio

PAGE = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()
EXAMPLE = PAGE.partition("```python\n")[2].partition("```")[0]
DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
TAG = re.compile(r"^<([A-Za-z_][\w.-]*)[ />]", re.MULTILINE)
FENCED = re.compile(r"^<<((?::::|!!!).*)\n(?:.*\n)*?\1$", re.MULTILINE)

FAULTY = """
def register(registry):
    registry.section("tides", lambda context: 1 / 0, priority=90)
"""


async def test_the_class_of_the_documentation_is_a_tool_a_section_and_an_observer(
    plugin, tmp_path, monkeypatch
) -> None:
    # RU145, RU148
    name = plugin("tides", EXAMPLE).replace(":register", ":Tides")
    monkeypatch.setenv("TURNWRIGHT_SECTIONS", name)
    async with running(tmp_path, hooks=name, tools=name) as services:
        services.script(f'<tide port="Dover"/><tide port="Atlantis"/>{GO_ON}', f'<get path="tide://*"/>{DONE}')
        assert (await services.until(await services.act())).status == 200
        assert (await services.entry("log://turn_1/tide/Dover")).body == "High water at Dover: 6.1 m at noon"
        assert await services.status("log://turn_1/tide/Atlantis") == 404

        packet = (await services.entry("user://2")).body
        shown = '<tides>\n<item path="tide://Dover">\n<<:::tide://Dover\n6.1 m at noon\n:::tide://Dover\n</item>\n</tides>\n'
        assert (packet.count("tide://Dover"), shown in packet) == (3, True)
        assert packet.index("</prompt>") < packet.index(shown) < packet.index("<log>")

        reply = json.loads((await services.entry("assistant://2")).attributes_json)
        assert reply["call"]["render_version"] == f"{RENDER_VERSION} {name}=unversioned"
        assert reply["call"]["room_chars"] is None

        tools = {tool.name for tool in (await services.client.discover()).tools}
        tags = set(TAG.findall(FENCED.sub("", packet)))
        sections = {"prompt", "summary", "visible", "log", "unknowns", "instructions", "budget"}
        # RU043
        assert tags <= sections | {"tides", "item"} | tools | {scheme or "file" for scheme in BY_NAME} | {"repo"}


async def test_what_it_observes_it_writes_down_at_plugin_tier(plugin, tmp_path) -> None:
    # RU121
    name = plugin("tides_observed", EXAMPLE).replace(":register", ":Tides")
    async with running(tmp_path, tools=name) as services:
        services.script(f'<tide port="Dover"/>{DONE}')
        await services.until(await services.act())
        await services.stop("executor")
        await services.start("executor")
        entry = await services.entry("known://ports")
        assert (entry.body, entry.writer, entry.turn) == ("tide://Dover", int(Tier.PLUGIN), 1)


async def test_a_section_that_fails_ends_the_loop_with_the_plugin_and_no_model_is_called(
    plugin, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("TURNWRIGHT_SECTIONS", plugin("faulty_tides", FAULTY))
    async with running(tmp_path) as services:
        services.script(DONE)
        loop = await services.until(await services.act())
        said = "plugin_failed: The plugin faulty_tides:register failed in <tides> (error "
        assert (loop.status, loop.reason[: len(said)]) == (500, said)
        turn = (await services.client.get_run(services.project, "r", turns_max=1)).turns[0]
        assert turn.result.error == "plugin_failed:500"
        assert not [one async for one in services.client.list_entries(services.project, "r", "assistant://*")]
        monkeypatch.setenv("TURNWRIGHT_SECTIONS", "none")
        await services.restart("assembler")
        assert (await services.until(await services.act())).status == 200
