"""What plugins bring to packets: sections, projections, filters. Rows RU042-RU044, RU145, RU148."""

import re

import pytest
from msgspec.structs import replace
from turnwright_values.types import Cursor, Visibility

from log_lines import logged
from turnwright_assembler.app.packet import compose
from turnwright_assembler.app.run_rows import RunRows
from turnwright_assembler.domain.envelope import RESERVED
from turnwright_assembler.domain.ladder import TokenBudget, climb
from turnwright_assembler.plugins import Item, Registry
from turnwright_assembler.ports import ViewPart
from turnwright_assembler.sections import SECTIONS
from turnwright_assembler.sections.plugin_sections import RENDER_VERSION, PluginSection
from turnwright_assembler.sections.registry import TAKEN, load_plugins
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.instructions import SYSTEM_PATH
from turnwright_core.schemes import BY_NAME, Scheme, Schemes
from turnwright_core.text import count_tokens
from turnwright_kit.plugins import Plugin
from turnwright_kit.settings import SettingsError
from unit.assembler.entries import DIVISOR, entry
from unit.assembler.packet_reader import names, read_packet, section

SCHEMES = Schemes({"weather": Scheme("weather", "data"), "tide": Scheme("tide", "hidden")}, "1")
PROMPT = entry("prompt://3", "go out", mode="act", position=1)
SUN = entry("weather://Bern", "Sun.\n" * 30, position=2)
TIDE = entry("tide://noon", "high", position=3)
CEILING = 100_000


def plugged(*registrations, version="1.0"):
    """What a plugin `w` brings that registers so."""
    registry = Registry()
    for register in registrations:
        register(registry.of("w"))
    return registry.packet_plugins([Plugin("w", "w:register", version, lambda: None)])


def rows_of(made, *entries):
    rows = RunRows(DIVISOR, made)
    rows.apply(ViewPart(entries, (), Cursor("i", 1, 0, 0), SCHEMES))
    return rows


def packet(rows, *, loop=1, ceiling=CEILING, blocks=None):
    return compose(blocks or rows.ordered(), rows.system, loop, ceiling, DIVISOR, rows.additions())


def user(made, *entries):
    return packet(rows_of(made, *entries)).user


def tides(seen=None):
    """A section `<tides>` with the entries of tide://, and what it was given."""

    def render(context):
        if seen is not None:
            seen.append(context)
        return [Item(one.path, one.body, "high_tide", {"state": one.state.name}) for one in context.entries]

    return lambda registry: registry.section("tides", render, priority=90, schemes=("tide",))


# Sections -----------------------------------------------------------------------------------------------------------


def test_a_section_stands_at_its_place_with_its_items_fenced():
    # RU043, RU148
    text = user(plugged(tides()), PROMPT, SUN, replace(TIDE, body="</tides>\n:::tide://noon"))
    assert names(text) == ["prompt", "summary", "visible", "tides", "instructions", "budget"]
    (item,) = section(text, "tides").children
    assert (item.name, item.attributes, item.body) == (
        "high_tide", {"path": "tide://noon", "state": "RESOLVED"}, "</tides>\n:::tide://noon",
    )  # fmt: skip


def test_a_section_without_items_is_left_out():
    assert "tides" not in user(plugged(tides()), PROMPT, SUN)


def test_a_section_is_given_what_it_asked_for_and_no_more():
    seen = []
    user(plugged(tides(seen)), PROMPT, SUN, TIDE, entry("tide://night", visibility=Visibility.ARCHIVED, position=4))
    (context,) = seen
    assert (context.loop, context.loop_start_turn, context.mode, context.entries) == (1, 3, "act", (TIDE,))


def test_without_a_prompt_the_turn_is_not_known():
    seen = []
    user(plugged(tides(seen)), TIDE)
    assert (seen[0].loop_start_turn, seen[0].mode) == (0, "")


def test_it_is_not_asked_again_while_nothing_that_it_is_given_has_changed():
    # architecture 12.5
    seen = []
    rows = rows_of(plugged(tides(seen)), PROMPT, SUN, TIDE)
    first = packet(rows)
    rows.apply(ViewPart((replace(SUN, body="Rain."),), (), Cursor("i", 2, 0, 0)))
    second = packet(rows)
    assert len(seen) == 1
    piece = next(one for one in first.pieces if "tide://noon" in one)
    assert any(one is piece for one in second.pieces)
    rows.apply(ViewPart((replace(TIDE, body="low"),), (), Cursor("i", 3, 0, 0)))
    assert ("low" in packet(rows).user, len(seen)) == (True, 2)
    rows.apply(ViewPart((), (TIDE.path,), Cursor("i", 4, 0, 0)))
    assert "tides" not in packet(rows).user


def test_the_figures_count_it_to_the_token():
    # RU208, C15
    for body in ("x", "x" * 99, "y" * 1234):
        made = packet(rows_of(plugged(tides()), PROMPT, SUN, replace(TIDE, body=body)))
        assert made.tokens == count_tokens(made.user, DIVISOR) + count_tokens(made.system, DIVISOR)
        assert f'tokenUsage="{made.tokens}"' in made.user


def test_what_the_ladder_summarizes_is_summarized_in_it_as_well():
    def render(context):
        return [Item(one.path, one.body if one.visibility is Visibility.VISIBLE else "") for one in context.entries]

    made = plugged(lambda registry: registry.section("forecast", render, priority=80, schemes=("weather",)))
    rows = rows_of(made, PROMPT, replace(SUN, body="Sun.\n" * 3000))
    ceiling = packet(rows).tokens - 10
    climbed = climb(
        packet(rows, ceiling=ceiling),
        rows.ordered(),
        2,
        "prompt://3",
        TokenBudget(ceiling),
        lambda blocks: packet(rows, ceiling=ceiling, blocks=blocks),
    )
    assert (climbed.demoted, climbed.overflow) == ((SUN.path,), False)
    assert section(climbed.packet.user, "forecast").children[0].body == ""


def test_an_entry_cannot_carry_the_tag_of_a_section():
    made = plugged(lambda registry: registry.section("tides", lambda _: [Item("a")], priority=90))
    text = user(made, entry("log://turn_1/tides/a", tool="tides"))
    assert [node.name for node in section(text, "log").children] == ["tides_"]


# Projections --------------------------------------------------------------------------------------------------------


def test_a_scheme_is_shown_as_its_plugin_says():
    # RU145
    def register(registry):
        registry.projection(
            "weather", visible=lambda one: one.body.upper(), summarized=lambda one: f"{len(one.body)} characters"
        )

    text = user(plugged(register), PROMPT, SUN, entry("known://a", "as it is", position=4))
    assert [node.body for node in section(text, "summary").children] == ["150 characters", "as it is"]
    assert [node.body for node in section(text, "visible").children] == [SUN.body.upper(), "as it is"]


def test_what_is_not_projected_is_shown_as_any_other_entry():
    made = plugged(lambda registry: registry.projection("weather", summarized=lambda _: "short"))
    assert section(user(made, PROMPT, SUN), "visible").children[0].body == SUN.body


def test_a_summary_longer_than_its_body_costs_no_less_than_nothing():
    scheme = replace(SCHEMES, registered={"weather": Scheme("weather", "logging")})
    rows = RunRows(DIVISOR, plugged(lambda registry: registry.projection("weather", summarized=lambda _: "x" * 500)))
    rows.apply(ViewPart((SUN,), (), Cursor("i", 1, 0, 0), scheme))
    assert [block.a_tokens for block in rows.ordered()] == [0]


# Filters ------------------------------------------------------------------------------------------------------------


def test_values_go_through_both_chains_in_the_order_of_priorities():
    # RU042, RU044
    def register(registry):
        registry.filter("assembly.system", lambda text, _: f"{text}|b", priority=20)
        registry.filter("assembly.system", lambda text, context: f"{text}|{context.tools}{context.persona}")
        registry.filter("assembly.user", lambda pieces, _: (*pieces, "<late/>\n"), priority=110)
        registry.filter("assembly.user", lambda pieces, _: (*pieces, "<early/>\n"), priority=60)

    system = entry(SYSTEM_PATH, "", tools=["get"], tool_docs={}, persona="Ada")
    rows = rows_of(plugged(register), PROMPT, SUN, system)
    made = packet(rows)
    assert made.system.endswith("|('get',)Ada|b")
    assert names(made.user) == ["prompt", "summary", "early", "visible", "late", "instructions", "budget"]
    assert made.tokens == count_tokens(made.user, DIVISOR) + count_tokens(made.system, DIVISOR)


def test_a_filter_changes_what_stands_before_its_place_and_the_figures_stay_true():
    # RU044
    def hide(pieces, context):
        assert [one.path for one in context.entries] == ["tide://noon"]
        return [piece.replace("secret", "******") for piece in pieces if "tide" not in piece]

    made = plugged(tides(), lambda registry: registry.filter("assembly.user", hide, priority=174, schemes=("tide",)))
    rows = rows_of(made, PROMPT, entry("known://a", "a secret", position=4), TIDE)
    for ceiling in range(900, 1000):
        filtered = packet(rows, ceiling=ceiling)
        assert filtered.tokens == count_tokens(filtered.user, DIVISOR) + count_tokens(filtered.system, DIVISOR)
    assert ("secret" in filtered.user, "high" in filtered.user, "a ******" in filtered.user) == (False, False, True)


def test_a_packet_that_grows_with_its_own_figures_is_given_up():
    def growing(pieces, _):
        usage = int(re.search(r'tokenUsage="(\d+)"', pieces[0])[1])
        return (*pieces, "x" * (usage + 2) * 2)

    made = plugged(lambda registry: registry.filter("assembly.user", growing, priority=60))
    with pytest.raises(TurnwrightError, match="grows with its own figures") as failed:
        user(made, PROMPT)
    assert (failed.value.reason, failed.value.metadata["plugin"]) == (Reason.PLUGIN_FAILED, "w")


# Faults, and what identifies the bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("register", "part"),
    [
        (lambda registry: registry.section("tides", lambda _: 1 / 0, priority=90, schemes=("tide",)), "<tides>"),
        (lambda registry: registry.section("tides", lambda _: ["text"], priority=90), "<tides>"),
        (lambda registry: registry.section("tides", lambda _: [Item("a", 7)], priority=90), "<tides>"),
        (lambda registry: registry.section("tides", lambda _: (1 / 0 for _ in "a"), priority=90), "<tides>"),
        (lambda registry: registry.projection("weather", visible=lambda one: None), "weather:// (visible)"),
        (lambda registry: registry.projection("weather", summarized=lambda one: one.gone), "weather:// (summarized)"),
        (lambda registry: registry.filter("assembly.user", lambda pieces, _: "text", priority=90), "assembly.user"),
        (lambda registry: registry.filter("assembly.user", lambda pieces, _: None, priority=90), "assembly.user"),
        (lambda registry: registry.filter("assembly.system", lambda text, _: 1 / 0), "assembly.system"),
    ],
)
def test_no_packet_is_made_without_a_plugin_that_failed(register, part):
    made = plugged(register)
    with logged() as lines, pytest.raises(TurnwrightError) as failed:
        user(made, PROMPT, SUN, TIDE)
    assert (failed.value.reason, failed.value.metadata["plugin"], failed.value.metadata["part"]) == (
        Reason.PLUGIN_FAILED, "w", part,
    )  # fmt: skip
    (line,) = lines
    assert (line["plugin"], line["error_id"]) == ("w", failed.value.metadata["error_id"])
    assert line["error_id"] in failed.value.message


def test_halves_of_characters_that_a_plugin_returns_are_replaced():
    def register(registry):
        registry.section("tides", lambda _: [Item("a\ud800", "b\ud800", attributes={"c": "\ud800"})], priority=90)
        registry.projection("weather", visible=lambda _: "\ud800")
        registry.filter("assembly.user", lambda pieces, _: (*pieces, '<x a="\ud800"/>\n'), priority=100)

    assert user(plugged(register), PROMPT, SUN).encode()


def test_the_render_version_names_the_release_and_every_plugin_with_its_version():
    registry = Registry()
    found = [Plugin(name, f"{name}:register", version, lambda: None) for name, version in (("b", "2"), ("a", "1.0"))]
    made = registry.packet_plugins(found)
    assert (made.render_version, made.plugins) == (f"{RENDER_VERSION} a=1.0 b=2", ("a", "b"))
    packets, prompts = load_plugins("none")
    assert (packets.render_version, packets.plugins, prompts) == (RENDER_VERSION, (), ())


def test_equal_input_gives_equal_bytes_whatever_was_made_before():
    made = plugged(tides(), lambda registry: registry.projection("weather", summarized=lambda one: one.body[:3]))
    warm = rows_of(made, PROMPT, replace(SUN, body="other"), replace(TIDE, body="other"))
    packet(warm)
    warm.apply(ViewPart((SUN, TIDE), (), Cursor("i", 2, 0, 0)))
    assert packet(warm).messages == packet(rows_of(made, PROMPT, SUN, TIDE)).messages


# What can be registered ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("register", "word"),
    [
        (lambda registry: registry.section("budget", print, priority=90), "<budget> is taken, by the runtime"),
        (lambda registry: registry.section("known", print, priority=90), "<known> is taken, by the runtime"),
        (lambda registry: registry.section("get", print, priority=90), "<get> is taken, by the runtime"),
        (lambda registry: [registry.section("a", print, priority=90) for _ in "ab"], "<a> is taken, by w"),
        (lambda registry: registry.section("A b", print, priority=90), "is not a tag"),
        (lambda registry: registry.section("a", print, priority=175), "is not a priority"),
        (lambda registry: registry.section("a", print, priority=29), "is not a priority"),
        (lambda registry: registry.filter("assembly.user", print), "10 is not a priority"),
        (lambda registry: registry.filter("assembly.usr", print, 90), "there is no filter 'assembly.usr'"),
        (lambda registry: registry.projection("known", visible=str), "known:// are already shown by the runtime"),
        (lambda registry: [registry.projection("x", visible=str) for _ in "ab"], "x:// are already shown by w"),
    ],
)
def test_what_cannot_be_shown_is_refused_when_it_is_registered(register, word):
    with pytest.raises(ValueError, match=re.escape(word)):
        plugged(register)


def test_a_function_that_waits_is_refused():
    async def late(_context):
        return []

    with pytest.raises(TypeError, match="not a plain function"):
        plugged(lambda registry: registry.section("a", late, priority=90))


def test_what_is_for_the_executor_is_passed_over():
    # RU148: one class may be several kinds of plugin.
    def register(registry):
        registry.on("turn.completed", print)
        registry.tool(object())
        registry.filter("turn.verdict", print)

    assert user(plugged(register), PROMPT) == user(plugged(), PROMPT)


@pytest.mark.parametrize(
    ("enabled", "word"),
    [("nobody", "there is no plugin 'nobody'"), ("json:loads", "the plugin json:loads cannot be loaded")],
)
def test_a_plugin_that_cannot_be_loaded_is_reported_by_name(enabled, word):
    with pytest.raises(SettingsError, match=rf"^TURNWRIGHT_SECTIONS: {word}"):
        load_plugins(enabled)


# Whose tags are whose --------------------------------------------------------------------------------------------------


def test_every_tag_of_a_packet_belongs_to_a_section_a_scheme_or_a_tool():
    # RU043
    tools = {"get", "sh", "forecast"}
    made = plugged(tides())
    rows = (
        PROMPT, SUN, TIDE, entry("src/a.py", position=5), entry("known://a", position=6),
        entry("unknown://a", position=7), entry("prompt://9", loop=2, position=8), entry("sh://turn_1/a_1", position=9),
        *(entry(f"log://turn_1/{tool}/a", tool=tool, position=10) for tool in tools),
        entry("plan://main", position=11), entry("plan://main/v1/1", position=12),
        entry("event://turn_1/tick/a", event={"subkind": "tick", "source": "clock", "payload": {}}, position=13),
    )  # fmt: skip
    sections = {step.tag: {"high_tide"} if isinstance(step, PluginSection) else set() for step in made.steps}
    schemes = {name or "file" for name in (*BY_NAME, *SCHEMES.registered)}
    for node in read_packet(user(made, *rows)):
        assert node.name in sections
        inside = {child.name for child in node.children}
        assert inside <= (sections[node.name] or schemes | tools | {"plan-update"}), node.name
    assert frozenset(each.tag for each in SECTIONS) | {"plan", "plan-update", "event"} == RESERVED
    assert RESERVED <= TAKEN
