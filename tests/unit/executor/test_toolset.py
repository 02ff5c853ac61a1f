"""Which tools a loop offers. Rows RU122, RU123."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnwright_values.types import LoopSettings, Mode

from cases import load_cases
from turnwright_core.tools import PHASES, TOOL_ORDER
from turnwright_executor.domain.toolset import resolve_tools

from .bench import TOOLS

FLAGS = {"noInteraction": "no_interaction", "noWeb": "no_web", "noProposals": "no_proposals"}
MORE = {"skill", "set_plan", "update_plan", "get_plan", "delegate", "wait_agents"}
"""Offered everywhere, and not in the cases (C8, C45)."""
SETS = [case for case in load_cases("rummy/tool_sets.jsonl") if "tools" in case["expected"]]


@pytest.mark.parametrize("case", SETS, ids=[case["id"] for case in SETS])
def test_mode_and_flags_decide_the_tools(case):
    given_ = case["input"]
    flags = {FLAGS[name]: value for name, value in given_["flags"].items()}
    tools = resolve_tools(LoopSettings(Mode[given_["mode"].upper()], **flags))
    assert set(tools) == {*case["expected"]["tools"], *MORE}


def test_act_mode_offers_every_tool_in_display_order():
    assert resolve_tools(LoopSettings(Mode.ACT)) == TOOL_ORDER


def test_what_cannot_work_here_is_not_offered():
    tools = resolve_tools(LoopSettings(Mode.ACT), unconfigured={"search"})
    assert tools == tuple(name for name in TOOL_ORDER if name != "search")


def test_get_comes_first_and_ask_user_last():
    assert TOOL_ORDER[0] == "get"
    assert TOOL_ORDER[-2:] == ("update", "ask_user")
    assert [phase for phase, _ in PHASES] == ["gather", "reason", "act", "communicate"]


def test_ask_mode_has_no_sh():
    assert "sh" not in resolve_tools(LoopSettings(Mode.ASK))


def test_without_proposals_no_command_runs():
    tools = resolve_tools(LoopSettings(Mode.ACT, no_proposals=True))
    assert not {"sh", "env"} & set(tools)
    assert "set" in tools


def test_the_table_of_tools_and_the_order_name_the_same():
    assert set(TOOLS) == set(TOOL_ORDER)
    assert all(tool.name == name for name, tool in TOOLS.items())


@given(st.builds(LoopSettings, st.sampled_from([Mode.ASK, Mode.ACT]), no_proposals=st.booleans(), yolo=st.booleans()))
def test_exclusion_never_changes_the_order(settings):
    tools = resolve_tools(settings)
    assert list(tools) == [name for name in TOOL_ORDER if name in tools]
