"""What is refused before dispatch. Rows RU129, RU130, RU159, RU160; decision C2."""

from types import MappingProxyType

import pytest
from turnwright_values.types import LoopSettings, Mode

from cases import load_cases
from turnwright_core.tools import TOOL_ORDER
from turnwright_executor.domain.addresses import TurnAddress
from turnwright_executor.domain.policy import GATE, Recording, RecordingContext
from turnwright_executor.domain.records import target_attribute, target_of
from turnwright_executor.domain.toolset import resolve_tools

from .commands import built, command

ASK = resolve_tools(LoopSettings(Mode.ASK))
MODES = load_cases("rummy/mode_policy.jsonl")


def refusal(sent, mode, tools, targets=MappingProxyType({})) -> Recording | None:
    """The first rule that refuses a command; None: none does."""
    context = RecordingContext(TurnAddress(), mode, tools, 0, targets=targets)
    checked = (rule(Recording(sent), context) for _, rule in GATE)
    return next((one for one in checked if one.is_refused), None)


def outcome(text: str, mode: Mode = Mode.ACT, tools=TOOL_ORDER) -> str:
    found = refusal(command(text), mode, tools)
    return found.outcome if found else ""


@pytest.mark.parametrize("case", MODES, ids=[case["id"] for case in MODES])
def test_the_mode_decides_what_is_allowed(case):
    given = dict(case["input"])
    mode, tool, body = Mode[given.pop("mode").upper()], given.pop("tool"), given.pop("body", "")
    tools = resolve_tools(LoopSettings(mode))
    found = refusal(built(tool, given, body), mode, tools)
    assert (found is None) is case["expected"]["allowed"]
    assert found is None or found.outcome == "permission:403"


@pytest.mark.parametrize(
    "text",
    [
        '<set path="src/a.py">x</set>',
        '<rm path="src/a.py"/>',
        '<rm path="src/*.py"/>',
        '<mv path="known://a" to="src/a.py"/>',
        '<mv path="src/a.py" to="known://a"/>',
        '<cp path="src/a.py" to="src/b.py"/>',
        "<sh>ls</sh>",
    ],
)
def test_ask_mode_refuses_what_would_change_files(text):
    assert outcome(text, Mode.ASK, ASK) == "permission:403"
    assert outcome(text, Mode.ACT) == ""


@pytest.mark.parametrize(
    "text",
    [
        '<get path="src/a.py"/>',
        '<set path="known://a">x</set>',
        '<set path="src/a.py" visibility="archived"/>',
        '<rm path="src/*.py" manifest/>',
        '<rm path="known://a"/>',
        '<cp path="src/a.py" to="known://a"/>',
        "<env>ls</env>",
        "<think>hm</think>",
        '<update status="200">done</update>',
    ],
)
def test_ask_mode_allows_what_changes_no_file(text):
    assert outcome(text, Mode.ASK, ASK) == ""


def test_a_refusal_says_what_was_refused_and_what_to_do():
    found = refusal(command('<set path="src/a.py">x</set>'), Mode.ASK, ASK)
    assert "src/a.py" in found.body
    assert "<update>" in found.body


@pytest.mark.parametrize(
    ("length", "expected"), [(512, ""), (513, "invalid:400")], ids=["RU130-longest", "RU130-too-long"]
)
@pytest.mark.parametrize(("tool", "attribute"), [("get", "path"), ("rm", "path"), ("sh", "command")])
def test_a_target_has_at_most_512_characters(tool, attribute, length, expected):
    found = refusal(built(tool, {attribute: "a" * length}), Mode.ACT, TOOL_ORDER)
    assert (found.outcome if found else "") == expected


@pytest.mark.parametrize("path", ["a\nb", "a\x00b", "a\x07b", "a\x7fb", "a\x9bb", "known://a\r"])
def test_a_path_with_control_characters_is_refused(path):
    for built_ in (built("get", {"path": path}), built("cp", {"path": "a", "to": path})):
        assert refusal(built_, Mode.ACT, TOOL_ORDER).outcome == "invalid:400"


def test_a_command_may_have_several_lines_and_no_other_control_characters():
    assert refusal(built("sh", {"command": "cd a\n\tls"}), Mode.ACT, TOOL_ORDER) is None
    assert refusal(built("sh", {"command": "ls \x1b[0m"}), Mode.ACT, TOOL_ORDER).outcome == "invalid:400"


@pytest.mark.parametrize("text", ["<get></get>", "<sh/>", "<set>x</set>", '<rm path="  "/>', "<cp/>", "<env> </env>"])
def test_a_target_that_is_absent_counts_as_empty_and_is_refused(text):
    assert outcome(text) == "invalid:400"


def test_tools_without_a_target_need_none():
    assert outcome("<think/>") == outcome("<update/>") == ""


@pytest.mark.parametrize(("target", "given", "expected"), [
    ("", {"city": "Ulm"}, ""), ("city", {"city": "Ulm"}, ""), ("city", {"path": "a"}, "invalid:400"),
])  # fmt: skip
def test_a_tool_of_a_plugin_or_client_has_the_target_that_it_says(target, given, expected):
    found = refusal(built("weather", given), Mode.ACT, (*TOOL_ORDER, "weather"), {"weather": target})
    assert (found.outcome if found else "") == expected


def test_an_unknown_tool_is_not_found():
    for name in ("known", "unknown"):
        assert refusal(built(name, {"path": "a"}), Mode.ACT, TOOL_ORDER).outcome == "not_found:404"
    assert refusal(built("frobnicate", {"path": "a"}), Mode.ACT, TOOL_ORDER).outcome == "not_found:404"


@pytest.mark.parametrize("tool", [name for name in TOOL_ORDER if target_attribute(name, {})])
def test_a_command_without_its_target_is_recorded_with_an_empty_one_and_refused(tool):
    # RU129
    bare = built(tool, {})
    assert target_of(bare, {}) == ""
    assert refusal(bare, Mode.ACT, TOOL_ORDER).outcome == "invalid:400"
    assert f"<{tool}> needs " in refusal(bare, Mode.ACT, TOOL_ORDER).body


@pytest.mark.parametrize("tool", TOOL_ORDER)
def test_a_command_has_one_target_at_most(tool):
    # RU129
    given = {"path": "a path", "command": "a command", "question": "a question"}
    assert target_of(built(tool, given), {}) in {*given.values(), ""}
    assert target_attribute(tool, {}) in {*given, ""}
