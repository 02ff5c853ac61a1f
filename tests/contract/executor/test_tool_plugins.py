"""Tools of plugins in the turns of a running executor. Rows RU029, RU121, RU122, RU148, RU157, AP42; architecture 6."""

from __future__ import annotations

import json
import sys

import pytest
from turnwright.types.v1 import command_record_pb2
from turnwright_values.types import Tier

from services import running, token_for
from turnwright_kit.identity.caller import KINDS
from turnwright_kit.settings import SettingsError

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'

WEATHER = '''
import asyncio

from turnwright_executor.plugins import (
    CallEffect, Done, EffectClass, EntryWrite, Need, Plan, PlanKind, PluginTool, Proposed, Scheme, SetEntry, Tier,
    Visibility, failed,
)


class Weather(PluginTool):
    name = "weather"
    doc = """## <weather city="[name]"/> - tells the weather

<weather city="Bern"/>
* YOU SHOULD ask before you go out."""
    needs = frozenset({Need.WEB})
    target = "city"
    phase = "gather"
    schemes = (Scheme("weather", "data"),)

    async def prepare(self, command, context):
        city = command.attributes["city"]
        match city:
            case "Nowhere":
                return failed("not_found:404", "There is no such city.")
            case "Crash":
                raise RuntimeError("secret text")
            case "Hang":
                await asyncio.sleep(60)
            case "Odd":
                return "sunny"
            case "System":
                return Done("", writes=(EntryWrite("instructions://system", SetEntry(body="x"), Tier.SYSTEM),))
            case "Broken":
                return Done("", attributes={"target": "x"})
        seen = await context.entries.get(["known://where"])
        change = SetEntry(body=f"Sun in {city}.", visibility=Visibility.VISIBLE)
        told = f"Sun in {city}, {seen[0].body}" if seen else f"Sun in {city}"
        return Done(told, attributes={"degrees": 21}, writes=(EntryWrite(f"weather://{city}", change),))


class Post(PluginTool):
    name = "post"
    doc = "## <post>text</post> - posts a text"
    effect_class = EffectClass.OUTSIDE
    needs = frozenset({Need.CHANGES, Need.PROPOSALS})
    posted = []

    def prepare(self, command, context):
        return Proposed(CallEffect({"text": command.body}), f"post {command.body}")

    def perform(self, effect, command, context):
        self.posted.append(effect.data["text"])
        return Done(f"posted {effect.data['text']}")


class Note(PluginTool):
    name = "note"
    doc = '## <note path="[path]">text</note> - writes an entry'

    def prepare(self, command, context):
        return Done("", writes=(EntryWrite(command.attributes["path"], SetEntry(body=command.body)),))


class Route(PluginTool):
    name = "route"
    doc = "## <route>text</route> - plans a route"
    effect_class = EffectClass.IDEMPOTENT

    async def prepare(self, command, context):
        return Proposed(CallEffect(), f"plan the route {command.body}", needs_decision=False)

    async def perform(self, effect, command, context):
        await context.plans.set(Plan("main", PlanKind.MARKDOWN, command.body), context.key)
        plan = await context.plans.update("main", "Tickets are bought.", f"{context.key} tickets")
        return Done(f"{plan.plan_id}: {(await context.plans.get('main')).body}")


def register(registry):
    registry.tool(Weather())
    registry.tool(Post())
    registry.tool(Note())
    registry.tool(Route())
'''

DIARY = """
from turnwright_executor.plugins import EntryWrite, SetEntry, Visibility

CORE = []


def register(registry):
    CORE.append(registry)
    registry.on("turn.completed", keep)


async def keep(event):
    entries = CORE[-1].entries(event.at)
    told = await entries.find("log://turn_1/**")
    change = SetEntry(body=f"{len(told)} records", visibility=Visibility.VISIBLE)
    await entries.write([EntryWrite(f"known://diary/{event.at.turn}", change)])
"""


def attributes_of(entry) -> dict:
    return json.loads(entry.attributes_json)


def tools_of(services, name: str, **settings):
    return running(services, tools=name, **settings)


async def test_a_tool_is_offered_told_read_and_carried_out_like_a_built_in_one(plugin, tmp_path) -> None:
    # RU029, RU148
    async with running(tmp_path, tools=plugin("weather_told", WEATHER)) as services:
        services.script(
            '<set path="known://where">by the lake</set><weather city="Bern"/>' + GO_ON,
            f'<get path="weather://*"/>{DONE}',
        )
        assert (await services.until(await services.act())).status == 200
        record = await services.entry("log://turn_1/weather/Bern")
        assert (record.status, record.body) == (200, "Sun in Bern, by the lake")
        kept = attributes_of(record)
        assert (kept["target"], kept["degrees"]) == ("Bern", 21)
        assert (record.record.tool, record.record.effect_class) == ("weather", command_record_pb2.EFFECT_CLASS_PURE)

        system = (await services.entry("system://1")).body
        assert "get, env, skill, weather, think" in system
        assert '## <weather city="[name]"/> - tells the weather' in system
        packet = (await services.entry("user://2")).body
        assert '<weather path="weather://Bern" status="200"' in packet
        assert packet.index("<summary>") < packet.index('<weather path="weather://Bern"') < packet.index("</visible>")

        turns = (await services.client.get_run(services.project, "r", turns_max=2)).turns
        offered = list(turns[0].request.tools)
        assert offered[offered.index("think") - 1] == "weather"
        told = {tool.name: tool.description for tool in (await services.client.discover()).tools}
        assert list(told) == [*offered, "undo"]
        assert told["weather"].startswith("## <weather")


async def test_its_scheme_is_registered_before_anything_is_written(plugin, tmp_path) -> None:
    async with running(tmp_path, tools=plugin("weather_scheme", WEATHER)) as services:
        services.script('<set path="weather://Rome">Rain.</set>' + DONE)
        await services.until(await services.act())
        entry = await services.entry("weather://Rome")
        assert (entry.scheme, entry.writer) == ("weather", int(Tier.MODEL))
        await services.restart("executor")
        assert await services.client.get_entry(services.project, "r", "weather://Rome") == entry


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"no_web": True}, {"weather"}),
        ({"no_proposals": True}, {"post", "env", "sh", "ask_user"}),
        ({"no_interaction": True}, {"ask_user"}),
    ],
    ids=["no_web", "no_proposals", "no_interaction"],
)
async def test_flags_take_it_away_and_its_command_is_refused(plugin, tmp_path, settings, missing) -> None:
    # RU122
    async with running(tmp_path, tools=plugin("weather_flags", WEATHER)) as services:
        services.script(f'<weather city="Bern"/><post>hello</post>{GO_ON}', DONE)
        await services.until(await services.act(**settings))
        offered = (await services.client.get_run(services.project, "r", turns_max=1)).turns[0].request.tools
        every = {tool.name for tool in (await services.client.discover()).tools}
        assert set(offered) == every - missing - {"undo"}
        weather = await services.entry("log://turn_1/weather/Bern")
        assert weather.status == (403 if "weather" in missing else 200)


async def test_ask_mode_is_without_what_changes_the_world(plugin, tmp_path) -> None:
    # RU122
    async with running(tmp_path, tools=plugin("weather_asked", WEATHER)) as services:
        services.script(DONE)
        await services.until(await services.ask())
        offered = (await services.client.get_run(services.project, "r", turns_max=1)).turns[0].request.tools
        assert ("weather" in offered, "post" in offered) == (True, False)


@pytest.mark.parametrize(
    ("city", "status", "word"),
    [
        ("Nowhere", 404, "no such city"),
        ("Crash", 500, "The tool weather crashed"),
        ("Odd", 500, "The tool weather crashed"),
        ("System", 500, "The tool weather crashed"),
        ("Broken", 500, "The tool weather crashed"),
        ("Hang", 504, "no answer within 2 s"),
    ],
)
async def test_what_goes_wrong_in_it_fails_its_own_command_alone(plugin, tmp_path, city, status, word) -> None:
    # RU121, RU157
    async with running(tmp_path, tools=plugin("weather_wrong", WEATHER), tool_deadline_s=2) as services:
        services.script(f'<weather city="{city}"/>{GO_ON}', f'<weather city="Bern"/>{DONE}')
        loop = await services.until(await services.act())
        record = await services.entry(f"log://turn_1/weather/{city}")
        assert (record.status, word in record.body, "secret" in record.body) == (status, True, False)
        assert (loop.status, await services.status("log://turn_2/weather/Bern")) == (200, 200)


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("plan://main", "plan_tool:409"),
        ("plan://two words", "plan_tool:409"),
        ("instructions://system", "permission:403"),
        ("event://turn_1/tick/a", "invalid:400"),
    ],
)
async def test_what_the_store_refuses_fails_its_command_alone(plugin, tmp_path, path, outcome) -> None:
    # RU276, RP02: a write that no tool of the runtime makes ends no loop
    async with running(tmp_path, tools=plugin("weather_refused", WEATHER)) as services:
        services.script(f'<note path="{path}">x</note><set path="known://b">kept</set>{GO_ON}', DONE)
        loop = await services.until(await services.act())
        records = [one for each, one in services.view().entries.items() if each.startswith("log://turn_1/")]
        assert [one.outcome for one in records if one.status >= 400] == [outcome]
        assert (loop.status, loop.turns, (await services.entry("known://b")).body) == (200, 2, "kept")


async def test_the_plans_of_a_plugins_tool_are_its_own(plugin, tmp_path) -> None:
    # AP42
    async with running(tmp_path, tools=plugin("weather_planned", WEATHER)) as services:
        services.script(f"<set_plan>One</set_plan><route>By train</route><get_plan/>{GO_ON}", DONE)
        await services.until(await services.act())
        plans = [plan async for plan in services.client.list_plans(services.project, "r")]
        assert [(one.plan_id, one.version, one.body, [each.text for each in one.deltas]) for one in plans] == [
            ("main", 1, "One", []),
            ("route-main", 1, "By train", ["Tickets are bought."]),
        ]
        assert (await services.entry("plan://route-main")).writer == int(Tier.PLUGIN)
        assert (await services.entry("log://turn_1/route/2")).body == "route-main: By train"
        assert (await services.entry("log://turn_1/get_plan/3")).body == "One"


@pytest.mark.parametrize(
    ("command", "word"),
    [("<weather/>", "needs a city"), ('<weather city="a&#10;b"/>', "control characters or line breaks")],
)
async def test_a_command_without_a_fit_target_is_refused_before_the_tool_hears_of_it(
    plugin, tmp_path, command, word
) -> None:
    async with running(tmp_path, tools=plugin("weather_targets", WEATHER)) as services:
        services.script(command + GO_ON, DONE)
        await services.until(await services.act())
        [record] = [one async for one in services.client.list_entries(services.project, "r", "log://turn_1/weather/*")]
        assert (record.outcome, word in record.body) == ("invalid:400", True)


async def test_an_effect_outside_waits_for_its_decision_and_is_carried_out_once(plugin, tmp_path) -> None:
    async with running(tmp_path, tools=plugin("weather_posts", WEATHER)) as services:
        services.script(f"<post>hello</post>{GO_ON}", DONE)
        queued = await services.act(yolo=False)
        await services.until(queued, 202)
        (waiting,) = (await services.client.get_run(services.project, "r")).proposals
        posted = sys.modules["weather_posts"].Post.posted
        assert (waiting, posted) == ("log://turn_1/post/1", [])
        assert (await services.entry(waiting)).body == "post hello"
        await services.client.resolve(services.project, "r", waiting, accept=True)
        await services.client.wait_loop(services.project, "r", queued.sequence)
        record = await services.entry(waiting)
        assert (record.status, record.body, posted) == (200, "posted hello", ["hello"])


@pytest.mark.parametrize("tier", [Tier.CLIENT, Tier.PLUGIN])
async def test_a_client_calls_it_like_any_other(plugin, tmp_path, tier) -> None:
    # RU030, RU119
    async with running(tmp_path, tools=plugin("weather_called", WEATHER)) as services:
        services.script(DONE)
        await services.until(await services.act())
        token = token_for("someone", KINDS[tier])
        async with type(services.client).connect(services.addresses["executor"], token) as client:
            record = await client.call_tool(services.project, "r", "weather", {"city": "Bern"}, "")
        assert (record.status, record.path.split("/")[3:], record.body) == (200, ["weather", "Bern"], "Sun in Bern")
        assert (await services.entry("weather://Bern")).writer == int(Tier.PLUGIN)


async def test_a_record_whose_tool_is_gone_fails_and_the_run_goes_on(plugin, tmp_path) -> None:
    async with running(tmp_path, tools=plugin("weather_gone", WEATHER)) as services:
        services.script(f"<post>hello</post>{GO_ON}", DONE)
        queued = await services.act(yolo=False)
        await services.until(queued, 202)
    async with running(tmp_path, tools="none") as services:
        await services.client.resolve(services.project, "r", "log://turn_1/post/1", accept=True)
        loop = await services.client.wait_loop(services.project, "r", queued.sequence)
        record = await services.entry("log://turn_1/post/1")
        assert (record.outcome, "is not installed" in record.body, loop.status) == ("not_found:404", True, 200)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ('name = "get"', "the name <get> is taken, by the runtime"),
        ('name = "set_plan"', "the name <set_plan> is taken, by the runtime"),
        ('name = "post"', "the name <post> is taken, by clash:register"),
        ('name = "Weather"', "is not a tool name"),
        ('doc = ""', "needs a documentation for the model"),
        ('phase = "communicate"', "choose from gather, reason, act"),
        ('schemes = (Scheme("known", "logging"),)', "the schemes known:// cannot be registered"),
    ],
    ids=["built in", "reserved", "another plugin's", "name", "text", "phase", "scheme"],
)
async def test_an_executor_does_not_start_with_a_tool_that_cannot_be_offered(plugin, tmp_path, changes, word) -> None:
    register = f"\n\nclass Clash(Weather):\n    {changes}\n\n\ndef register(registry):\n    registry.tool(Post())\n"
    name = plugin("clash", WEATHER + register + "    registry.tool(Clash())\n")
    with pytest.raises(SettingsError, match=r"^TURNWRIGHT_TOOLS: ") as refused:
        async with running(tmp_path, tools=name):
            pytest.fail("it started")
    assert word in str(refused.value)


async def test_an_observer_reads_and_writes_the_entries_of_its_run_at_plugin_tier(plugin, tmp_path) -> None:
    # RU121, RU126
    async with running(tmp_path, hooks=plugin("diary", DIARY)) as services:
        services.script(f"<think>a</think>{GO_ON}", DONE)
        assert (await services.until(await services.act())).status == 200
        await services.stop("executor")
        await services.start("executor")
        entry = await services.entry("known://diary/1")
        assert (entry.body, entry.writer, entry.turn) == ("2 records", int(Tier.PLUGIN), 1)


@pytest.mark.parametrize("name", ["sql", "engine", "connection", "_ledger"])
async def test_what_a_plugin_has_of_the_store_is_four_verbs(plugin, tmp_path, name) -> None:
    # RU121
    module = plugin("diary_verbs", DIARY)
    async with running(tmp_path, hooks=module):
        core = sys.modules["diary_verbs"].CORE[-1]
        entries = core.entries(type("At", (), {"project": "p", "run": "r", "turn": 1, "loop": 1}))
        assert {verb for verb in dir(entries) if not verb.startswith("_")} == {"get", "find", "scheme", "write"}
        assert not hasattr(entries, name)
