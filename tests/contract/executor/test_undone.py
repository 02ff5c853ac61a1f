"""Loops that end by their record, and not by what the model says of it. Rows RU140, RU278; C3, C25, C67."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from turnwright.types.v1 import settings_pb2

from contract.executor.proposing import PROPOSAL, waiting
from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from contract.executor.test_native_calls import calling, native
from contract.executor.test_replaying import again, stored
from services import running
from sse_server import chat

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

CLAIM = '<update status="200">Wrote it.</update>'
PROSE = "Wrote it."
GO_ON = '<update status="102">Going on.</update>'
FAILS = '<set path="a.txt"><<SEARCH\nmissing\nSEARCH\n<<REPLACE\nnew\nREPLACE</set>'
EDIT = '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set>'
GET = '<get path="a.txt"/>'
BLOCK = "<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n"
CUT_CALL = '\n<tool_call>{"name": "set", "arguments": {"path": "a.txt", "body": "ne'
FENCED = "I write it now.\n```xml\nThe file:\n" + '<set path="a.txt">new</set>' + "\n```\n"


@dataclass(frozen=True)
class Told:
    """A loop: the replies of its model before the claim, and whether the record bears the claim out."""

    replies: tuple[str, ...]
    reason: str = ""

    @property
    def status(self) -> int:
        return 422 if self.reason else 200


CHANGE, NOTHING = "change_failed", "nothing_run"
LOOPS = {
    "a failed edit": Told((FAILS + GO_ON,), CHANGE),
    "a failed edit and another file": Told((FAILS + GO_ON, '<set path="b.txt">new</set>' + GO_ON), CHANGE),
    "the same edit, done right": Told((FAILS + GO_ON, EDIT + GO_ON)),
    "done right much later": Told((FAILS + GO_ON, *(f'<get path="b.txt" line="{n}"/>' + GO_ON for n in (1, 2)), EDIT)),
    "replaced": Told((FAILS + GO_ON, '<set path="a.txt"><<NEW\nnew\nNEW</set>' + GO_ON)),
    "replaced by what is there": Told((FAILS + GO_ON, '<set path="./a.txt"><<NEW\nold\nNEW</set>' + GO_ON)),
    "copied over": Told((FAILS + GO_ON, '<cp path="b.txt" to="a.txt"/>' + GO_ON)),
    "moved over": Told((FAILS + GO_ON, '<rm path="a.txt"/><mv path="b.txt" to="a.txt"/>' + GO_ON)),
    "removed": Told((FAILS + GO_ON, '<rm path="a.txt"/>' + GO_ON)),
    "moved away": Told((FAILS + GO_ON, '<mv path="a.txt" to="c.txt"/>' + GO_ON)),
    "by a pattern": Told((FAILS + GO_ON, '<rm path="*.txt"/>' + GO_ON)),
    "by another spelling": Told((FAILS.replace("a.txt", "./x/../a.txt") + GO_ON, EDIT + GO_ON)),
    "with another spelling": Told((FAILS + GO_ON, EDIT.replace("a.txt", "./a.txt") + GO_ON)),
    "by the shell": Told((FAILS + GO_ON, "<sh>echo new > a.txt</sh>" + GO_ON)),
    "by a command that fails at last": Told((FAILS + GO_ON, "<sh>echo new > a.txt; exit 1</sh>" + GO_ON)),
    "the shell looks at it": Told((FAILS + GO_ON, "<sh>cat a.txt</sh>" + GO_ON), CHANGE),
    "the shell does something else": Told((FAILS + GO_ON, "<sh>echo new > c.txt</sh>" + GO_ON), CHANGE),
    "fails again after it was done": Told((EDIT + GO_ON, FAILS + GO_ON), CHANGE),
    "two failed, one done": Told(
        (FAILS + GO_ON, FAILS.replace("a.txt", "b.txt") + GO_ON, EDIT + GO_ON), CHANGE
    ),
    "a missing file": Told(('<rm path="none.txt"/>' + GO_ON,), CHANGE),
    "a copy of nothing": Told(('<cp path="none.txt" to="c.txt"/>' + GO_ON,), CHANGE),
    "a copy of nothing, written": Told(('<cp path="none.txt" to="c.txt"/>' + GO_ON, '<set path="c.txt">x</set>')),
    "a move of nothing": Told(('<mv path="none.txt" to="c.txt"/>' + GO_ON, '<set path="none.txt">x</set>'), CHANGE),
    "a move of nothing, written": Told(('<mv path="none.txt" to="c.txt"/>' + GO_ON, '<set path="c.txt">x</set>')),
    "outside of the project": Told(('<set path="../x">new</set>' + GO_ON,), CHANGE),
    "a follower of a failure": Told(('<get path="none.txt"/><set path="a.txt">new</set>' + GO_ON,), CHANGE),
    "a follower, repeated": Told(('<get path="none.txt"/><set path="a.txt">new</set>' + GO_ON, EDIT)),
    "a failed look": Told(('<get path="none.txt"/>' + GO_ON,)),
    "a failed command": Told(("<sh>exit 1</sh>" + GO_ON,)),
    "a failed note": Told(('<set path="log://x">y</set><set path="prompt://1">z</set>' + GO_ON,)),
    "unknown tools": Told(("<read_file><path>a.txt</path></read_file>" + GO_ON,), NOTHING),
    "unknown tools and thoughts": Told(("<think>Well.</think><bash command='ls'/>" + GO_ON,), NOTHING),
    "unknown tools and known ones": Told(("<read_file><path>a.txt</path></read_file>", '<get path="a.txt"/>' + GO_ON)),
    "a change of nothing named": Told(("<set>new</set>" + GO_ON,), NOTHING),
    "a copy to nowhere": Told(('<cp path="b.txt"/>' + GO_ON,), NOTHING),
    "a change of nothing named, then named": Told(("<set>new</set>" + GO_ON, EDIT + GO_ON)),
    "a look and a change of nothing named": Told((f"{GET}<set>new</set>{GO_ON}",), CHANGE),
    "a look, and its follower named nothing": Told((f"<set>new</set>{EDIT}{GO_ON}", GET), CHANGE),
    "a look and a copy to nowhere": Told((f'{GET}<cp path="b.txt"/>{GO_ON}',), CHANGE),
    "a follower of an unknown tool": Told((f'<bash command="ls"/><set path="a.txt">new</set>{GO_ON}',), CHANGE),
    "a look and a block of no file": Told((GET, BLOCK), CHANGE),
    "a block of no file, then of one": Told((GET, BLOCK, f"a.txt\n{BLOCK}")),
    "a block of no file, then another file": Told((GET, BLOCK, '<set path="b.txt">new</set>')),
    "a block of no file, then a look": Told((BLOCK, GET), CHANGE),
    "a block of no file before one of a file": Told((f"{BLOCK}\nSo:\n\na.txt\n{BLOCK}",)),
    "a block of no file behind one of a file": Told((f"a.txt\n{BLOCK}\nAnd once more, there:\n\n\n{BLOCK}",), CHANGE),
    "a block without an end": Told((GET, "a.txt\n" + BLOCK[:-17]), CHANGE),
    "a block without an end, then another file": Told((f"a.txt\n{BLOCK[:-17]}", '<set path="b.txt">x</set>'), CHANGE),
    "a look and a call that is cut off": Told((GET + CUT_CALL,), CHANGE),
    "a call that is cut off, then whole": Told((GET + CUT_CALL, EDIT)),
    "a call that is cut off, then another file": Told((GET + CUT_CALL, '<set path="b.txt">new</set>'), CHANGE),
    "a change that is cut off in its path": Told((f'{GET}\n<rm path="a.t',), CHANGE),
    "a change that is cut off in its path, then whole": Told((f'{GET}\n<rm path="a.t', '<rm path="a.txt"/>')),
    "a look that is cut off": Told((GET, CUT_CALL.replace("set", "get"))),
    "a note that is cut off": Told((GET, CUT_CALL.replace("a.txt", "log://x"))),
    "in a fence": Told((FENCED,), NOTHING),
    "in a fence, then outside": Told((FENCED, EDIT + GO_ON)),
    "in a quotation": Told(("> " + '<set path="a.txt">new</set>',), NOTHING),
    "in a fence of a quotation": Told(('> ```xml\n> <set path="a.txt">new</set>\n> ```\n',), NOTHING),
    "in a fence in a fence": Told(('````md\n```xml\n<set path="a.txt">new</set>\n```\n````\n',), NOTHING),
    "indented in a fence": Told(('```\nIt is:\n\n    <set path="a.txt">new</set>\n```\n',), NOTHING),
    "nothing at all": Told(()),
}  # fmt: skip


@pytest.mark.parametrize("claim", [CLAIM, PROSE], ids=["update", "prose"])
@pytest.mark.parametrize("told", LOOPS.values(), ids=LOOPS)
async def test_the_end_of_a_loop_is_what_its_record_says(services, told, claim):
    (services.files / "a.txt").write_text("old\n")
    (services.files / "b.txt").write_text("other\n")
    services.script(*told.replies, claim)
    loop = await services.until(await services.act())
    assert (loop.status, loop.turns) == (told.status, len(told.replies) + 1), loop.reason
    assert loop.reason.startswith(told.reason)
    decided = await again(await stored(services))
    assert [then for then, _ in decided] == [now for _, now in decided]
    assert len(decided) == loop.turns


@pytest.mark.parametrize("reply", [PROSE, FENCED, f"<bash command='ls'/>{GO_ON}"], ids=["prose", "fenced", "unknown"])
async def test_a_question_is_answered_whatever_was_not_run(services, reply):
    services.script(reply, PROSE)
    assert (await services.until(await services.ask())).status == 200


async def test_prose_alone_is_an_answer(services):
    services.script(PROSE)
    loop = await services.until(await services.act())
    assert (loop.status, loop.reason, loop.turns) == (200, "text", 1)


@pytest.mark.parametrize("reply", [FENCED, f"{FENCED}{CLAIM}", f"> {EDIT}\n", f"Look:\n\n    {EDIT}\n"])
async def test_ignored_commands_are_told_once(services, reply):
    services.script(reply, reply, PROSE)
    loop = await services.until(await services.act())
    assert (loop.status, loop.turns) == (422, 2)
    told = await services.entry("log://turn_1/error/ignored_1")
    assert (told.outcome, "not run" in told.body) == ("ignored:400", True)
    assert told.body in (await services.entry("user://2")).body
    result = (await services.client.get_run(services.project, "r", turns_max=2)).turns[0].result
    assert (result.strikes, result.tally.ignored_commands) == (0, 2)


async def test_a_quoted_tag_is_no_ignored_command(services):
    services.script('Use `<get path="a.txt"/>` for that, or <!-- <get path="a.txt"/> --> not.')
    assert (await services.until(await services.act())).turns == 1


async def test_a_rejected_change_is_no_failure(services):
    (services.files / "a.txt").write_text("old\n")
    queued = await waiting(services, f"{EDIT}<rm path='a.txt'/>{GO_ON}", PROSE)
    await services.client.resolve(services.project, "r", PROPOSAL, accept=False, comment="Leave it.")
    loop = await services.until(queued)
    assert (loop.status, loop.reason) == (200, "text")


async def test_a_tool_that_the_mode_refuses_is_no_failure(services):
    services.script(f"<sh>echo x > a.txt</sh>{GO_ON}", PROSE)
    assert (await services.until(await services.act(no_proposals=True))).status == 200


async def test_a_file_that_cannot_be_written_is_a_failure(services):
    folder = services.files / "locked"
    folder.mkdir()
    (folder / "a.txt").mkdir()
    services.script(f'<set path="locked/a.txt">new</set>{GO_ON}', CLAIM)
    loop = await services.until(await services.act())
    assert (loop.status, "locked/a.txt" in loop.reason) == (422, True)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ('<set path="a.txt">half of ', 422),
        ('<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPL', 422),
        ('<tool_call>{"name": "set", "arguments": {"path": "a.txt", "body": "hal', 422),
        (f"{EDIT}\n<sh>echo", 200),
        (f"{GET}\n<sh>echo", 200),
        (f'{GET}\n<set path="a.txt">half of ', 422),
        (f'{EDIT}\n<set path="b.txt">half of ', 422),
        (f"{GET}\na.txt\n{BLOCK[:-17]}", 422),
        (f"{GET}{CUT_CALL}", 422),
        (f"{GET}\n<function=set><parameter=path>a.txt</parameter><parameter=body>hal", 422),
        (f"{GET}\n<function=get><parameter=path>a.tx", 200),
        ("So it is:\n```python\nx = 1", 200),
        ("<think>It is", 200),
    ],
)
async def test_a_reply_that_was_cut_within_its_only_command_did_nothing(tmp_path, over_http, reply, status):
    async with over_http(chat(reply, finish="length"), chat(PROSE)), running(tmp_path) as services:
        (services.files / "a.txt").write_text("old\n")
        loop = await services.until(await native(services))
    assert (loop.status, loop.turns) == (status, 2), loop.reason


@pytest.mark.parametrize("assembly", [settings_pb2.ASSEMBLY_PACKET, settings_pb2.ASSEMBLY_TRANSCRIPT])
@pytest.mark.parametrize(
    ("calls", "status"),
    [
        ([("set", {"path": "a.txt", "body": FAILS[18:-6]})], 422),
        ([("set", {"path": "a.txt", "body": FAILS[18:-6]}), ("set", {"path": "a.txt", "body": "new"})], 200),
        ([("set", {"path": "a.txt", "body": "new"}), ("set", {"path": "a.txt", "body": FAILS[18:-6]})], 422),
        ([("bash", {"command": "ls"}), ("edit_file", {"path": "a.txt"})], 422),
        ([("bash", {"command": "ls"}), ("get", {"path": "a.txt"})], 200),
        ([("get", "]]]]")], 422),
        ([("get", {"path": "a.txt"}), ("get", "]]]]")], 200),
        ([("get", {"path": "a.txt"}), ("set", "]]]]")], 422),
        ([("set", "]]]]"), ("set", {"path": "a.txt", "body": "new"})], 200),
        ([("get", {"path": "a.txt"}), ("set", '{"path": "a.txt", "body": "ne')], 422),
        ([("set", {"path": "b.txt", "body": "new"}), ("set", '{"path": "a.txt", "body": "ne')], 422),
    ],
)
async def test_native_calls_are_judged_alike(tmp_path, over_http, assembly, calls, status):
    async with over_http(calling(*calls), chat(PROSE)), running(tmp_path) as services:
        (services.files / "a.txt").write_text("old\n")
        loop = await services.until(await native(services, assembly=assembly))
    assert (loop.status, loop.turns) == (status, 2), loop.reason


async def test_the_record_outlives_the_executor(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services:
        (services.files / "a.txt").write_text("old\n")
        (services.files / "b.txt").write_text("old\n")
        replies = (f"{FAILS}{GO_ON}", f"{EDIT.replace('a.txt', 'b.txt')}{GO_ON}", CLAIM)
        queued = await waiting(services, *replies)
        await services.restart("executor")
        await services.client.resolve(services.project, "r", "log://turn_2/set/b.txt", accept=True)
        loop = await services.until(queued)
    assert (loop.status, loop.turns, "a.txt" in loop.reason) == (422, 3, True)
