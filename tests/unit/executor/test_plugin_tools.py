"""What stands between a plugin's tool and the pipeline. Rows RU121, RU157; architecture 6."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from turnwright_values.replies import ToolCall
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import CommandEffect, Mode, State, Tier

from turnwright_assembler import plugins as assembler_plugins
from turnwright_core.errors import TurnwrightError
from turnwright_core.tools import TOOL_ORDER
from turnwright_executor import plugins as executor_plugins
from turnwright_executor.domain.amending import check_contents
from turnwright_executor.plugins import CallEffect, Done, FileEdit, FileEffect, PluginTool, Proposed, QuestionEffect
from turnwright_executor.tools.plugin_tools import ANSWER_BYTES_MAX, PluginToolAdapter, as_plugin
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.recording import read_draft
from turnwright_executor.wire.command_records import effect_from_pb, effect_to_pb
from turnwright_grammar.reply import Command
from turnwright_kit.plugin_calls import PluginCalls

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITE = EntryWrite("known://a", SetEntry(body="x"))
EDIT = FileEffect((FileEdit("a.txt", None, "x", ""),))


class Answering(PluginTool):
    """A tool that answers what a test wants."""

    name = "answer"
    doc = "## <answer/> - answers"

    def __init__(self, answer) -> None:
        self.answer = answer

    def prepare(self, command, context):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    perform = None


async def prepared(bench, answer, mode=Mode.ACT):
    tool, command = PluginToolAdapter(Answering(answer), "p", PluginCalls(5.0)), Command("answer")
    return await tool.prepare(command, replace(bench.context(command), mode=mode))


async def test_what_a_record_can_hold_is_handed_on_and_written_at_plugin_tier(bench) -> None:
    model = replace(WRITE, writer=Tier.MODEL, turn=99, loop=9)
    done = await prepared(bench, Done("ok", attributes={"a": [1]}, writes=(WRITE, model)))
    written = (replace(WRITE, writer=Tier.PLUGIN), replace(WRITE, writer=Tier.MODEL))
    assert done == Done("ok", attributes={"a": [1]}, writes=written)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "text",
        Done("ok", State.PROPOSED),
        Done("ok", outcome="word"),
        Done("\ud800"),
        Done("ok", attributes={"target": "x"}),
        Done("ok", attributes={"a": object()}),
        Done("ok", attributes={"a": float("nan")}),
        Done("ok", attributes={"a": "x" * ANSWER_BYTES_MAX}),
        Done("ok", writes=(replace(WRITE, writer=Tier.SYSTEM),)),
        Done("ok", writes=(replace(WRITE, writer=Tier.CLIENT),)),
        Done("ok", writes=(EntryWrite("known://a", SetEntry(body="\ud800")),)),
        Proposed("effect", "do it"),
        Proposed(CallEffect({"a": object()}), "do it"),
        Proposed(CallEffect(), "do it", attributes={"tool": "x"}),
    ],
)
async def test_what_no_record_can_hold_is_a_crash_of_the_tool(bench, answer) -> None:
    with pytest.raises((TypeError, ValueError)):
        await prepared(bench, answer)


@pytest.mark.parametrize("error", [RuntimeError("no"), StopIteration(), SystemExit(1)], ids=repr)
async def test_whatever_it_raises_is_raised_to_the_dispatch(bench, error) -> None:
    with pytest.raises(Exception, match=type(error).__name__ if not isinstance(error, RuntimeError) else "no"):
        await prepared(bench, error)


@pytest.mark.parametrize(
    ("effect", "is_allowed"),
    [
        (EDIT, False),
        (CallEffect({"a": 1}), False),
        (CommandEffect("ls", 1.0), False),
        (CommandEffect("ls", 1.0, read_only=True), True),
        (QuestionEffect("Which?"), True),
    ],
    ids=repr,
)
async def test_in_ask_mode_it_changes_nothing(bench, effect, is_allowed) -> None:
    # RU159
    wanted = Proposed(effect, "do it")
    answer = await prepared(bench, wanted, Mode.ASK)
    assert (answer is wanted, getattr(answer, "outcome", "")) == (is_allowed, "" if is_allowed else "permission:403")
    allowed = await prepared(bench, wanted)
    # Of a change of files the difference is made by us.
    assert (allowed.body, type(allowed.effect)) == ("do it", type(effect))


async def test_a_tool_that_proposes_nothing_carries_nothing_out(bench) -> None:
    command = Command("answer")
    assert (await PluginTool().perform(CallEffect(), command, bench.context(command))).outcome == "conflict:409"


async def test_an_effect_of_its_own_is_kept_as_data_and_has_no_other_content() -> None:
    effect = CallEffect({"to": "bob", "parts": [1, 2]})
    assert effect_from_pb(effect_to_pb(effect)) == effect
    with pytest.raises(TurnwrightError, match="accept it as it is"):
        check_contents(effect, {"": "other"})


async def test_its_commands_are_read_from_tags_and_from_native_calls() -> None:
    draft = Draft(['<answer to="a"/> and <other to="b"/>'], calls=(ToolCall("answer", '{"to": "c"}'),))
    named = [
        (one.name, dict(one.attributes), one.known) for one in read_draft(draft, 9, (*TOOL_ORDER, "answer")).commands
    ]
    assert named == [("answer", {"to": "a"}, True), ("answer", {"to": "c"}, True)]


async def test_a_writer_above_a_plugin_is_refused_with_the_path() -> None:
    with pytest.raises(ValueError, match="known://a: a plugin writes as plugin or as model, not as SYSTEM"):
        as_plugin(replace(WRITE, writer=Tier.SYSTEM))


@pytest.mark.parametrize("module", [executor_plugins, assembler_plugins])
async def test_every_name_that_authors_import_says_what_it_is(module) -> None:
    assert sorted(module.__all__) == module.__all__
    assert [name for name in module.__all__ if not getattr(getattr(module, name), "__doc__", "")] == []
