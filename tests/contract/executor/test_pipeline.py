"""How the steps of a turn reach the store: what is written together, in which order, and what survives a power loss."""

import asyncio
import sys

import grpc
import pytest
from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import entry_pb2

from services import running
from turnwright_core.errors import MissingError

pytestmark = pytest.mark.asyncio

GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">All is done.</update>'


BEGIN = "begin"
"""The call that opens a turn, and ends none."""


def _begins(method, request):
    return method == "EndTurn" and not request.turn and request.HasField("next")


class Asked(grpc.aio.ServerInterceptor):
    """Keeps what the store was asked for by some methods, in order; unless others are named, to write under a fence."""

    def __init__(self, *methods):
        self.methods = methods or ("WriteEntries", "EndTurn")
        self.asked = []

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        method = details.method.rpartition("/")[2]
        if method not in self.methods or "StoreService" not in details.method:
            return handler

        async def kept(request, context):
            self.asked.append((BEGIN if _begins(method, request) else method, request))
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(kept, handler.request_deserializer, handler.response_serializer)

    def told(self, path):
        """Each request that writes the path: its place, whether it is made to survive a power loss, and the state."""
        return [
            (place, method == "EndTurn" or request.durability == write_pb2.DURABILITY_FULL, write.set.state)
            for place, (method, request) in enumerate(self.asked)
            for write in request.writes
            if write.path == path
        ]


WITNESS = """
HEARD = []


def register(registry):
    for hook in ("turn.started", "turn.response", "turn.completed"):
        registry.on(hook, told(hook))


def told(hook):
    async def observer(event):
        HEARD.append(hook)

    return observer
"""

STEPS = {"Assemble", "ReadView", "WriteEntries", "Generate", "EndTurn"}


class Steps(grpc.aio.ServerInterceptor):
    """Puts what any service is asked for into a line, with what a write is about."""

    def __init__(self, line):
        self.line = line

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        method = details.method.rpartition("/")[2]
        if method not in STEPS:
            return handler
        if not handler.unary_unary:
            self.line.append(method)
            return handler

        async def kept(request, context):
            if _begins(method, request):
                self.line += [BEGIN, {write.path for write in request.next.writes if "://" in write.path}]
            else:
                self.line.append(method)
            if method == "WriteEntries" and request.HasField("packet"):
                self.line.append("packet")
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(kept, handler.request_deserializer, handler.response_serializer)


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")


async def test_one_full_write_before_an_outside_effect_also_finishes_the_command_before(tmp_path):
    """RECORD, then a mark for each command that carries the end of the one before it, then the verdict."""
    writes = Asked()
    async with running(tmp_path, [writes]) as services:
        services.script(f"<sh>true</sh><sh>echo b</sh>{DONE}")
        assert (await services.until(await services.act())).status == 200
    first, second = writes.told("log://turn_1/sh/true"), writes.told("log://turn_1/sh/echo_b")
    record, mark, end = first
    assert [full for _, full, _ in first] == [True, True, True]
    assert (record[0], end[0]) == (second[0][0], second[1][0])
    assert record[0] < mark[0] < end[0] < second[2][0]
    assert writes.asked[second[2][0]][0] == "EndTurn"
    assert [full for _, full, _ in second] == [True, True, True]


async def test_the_reply_and_all_its_commands_are_one_write_before_any_of_them_is_carried_out(tmp_path):
    """RU128."""
    writes = Asked()
    async with running(tmp_path, [writes]) as services:
        services.script(f'<get path="a.txt"/><sh>true</sh>{DONE}')
        await services.until(await services.act())
    places = {
        writes.told(path)[0][0]
        for path in ("assistant://1", "log://turn_1/get/a.txt", "log://turn_1/sh/true", "log://turn_1/update/3")
    }
    assert len(places) == 1


async def test_a_command_that_changes_nothing_costs_no_write_of_its_own(tmp_path):
    writes = Asked()
    async with running(tmp_path, [writes]) as services:
        services.script(f'<set path="known://a">A.</set><think>So.</think>{DONE}')
        await services.until(await services.act())
    assert [method for method, _ in writes.asked] == [BEGIN, "WriteEntries", "WriteEntries", "EndTurn"]


async def test_a_turn_that_follows_another_is_opened_with_its_end(tmp_path):
    """Architecture 12.1: at most four calls to the store for the bookkeeping of a turn."""
    calls = Asked("WriteEntries", "EndTurn", "GetEntries", "ReadPacket")
    async with running(tmp_path, [calls], record_after_s=1e6) as services:
        (services.files / "a").write_text("text of a")
        go_on = '<get path="a"/><set path="known://a">A.</set><update status="102">More.</update>'
        services.script(go_on, go_on, DONE)
        assert (await services.until(await services.act())).status == 200
        asked = list(calls.asked)
        entry = await services.entry("log://turn_2/get/a")
    turn = ["WriteEntries", "WriteEntries", "GetEntries", "EndTurn"]
    # The last one has no command that could have an effect.
    assert [method for method, _ in asked] == [BEGIN, *turn * 2, "WriteEntries", "EndTurn"]
    assert [request.HasField("next") for method, request in asked if method == "EndTurn"] == [True, True, False]
    assert (entry.turn, entry.status) == (2, 200)


async def test_much_that_changed_on_disk_is_written_before_its_turn_and_not_with_the_end_of_another(tmp_path):
    calls = Asked()
    async with running(tmp_path, [calls]) as services:
        services.script(
            '<sh>for n in 1 2 3; do head -c 100000 /dev/zero | tr "\\0" $n > $n.txt; done</sh>'
            '<update status="102">More.</update>',
            DONE,
        )
        assert (await services.until(await services.act(yolo=True))).status == 200
        bodies = [(await services.entry(f"{number}.txt")).body for number in (1, 2, 3)]
    assert bodies == [str(number) * 100_000 for number in (1, 2, 3)]
    assert [method for method, _ in calls.asked].count(BEGIN) == 2
    assert not any(request.HasField("next") for method, request in calls.asked if method == "EndTurn")


async def test_what_changed_on_disk_goes_with_the_end_of_the_turn_that_changed_it(tmp_path):
    """RU204: the model's next turn sees it, and the end of the turn before is as it was."""
    async with running(tmp_path) as services:
        services.script('<sh>echo new > a.txt</sh><update status="102">More.</update>', DONE)
        assert (await services.until(await services.act(yolo=True))).status == 200
        found = await services.entry("a.txt")
        assert (found.body, found.turn) == ("new\n", 2)


async def test_a_file_that_a_command_changed_is_written_once(tmp_path):
    """RU204: its entry is of the turn that changed it, and of no later one."""
    writes = Asked()
    async with running(tmp_path, [writes]) as services:
        (services.files / "a.txt").write_text("old\n")
        services.script(
            '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set><set path="b.txt">b</set>'
            '<update status="102">More.</update>',
            '<rm path="b.txt"/><sh>echo newer > a.txt</sh><update status="102">More.</update>',
            '<update status="102">More.</update>',
            DONE,
        )
        assert (await services.until(await services.act())).status == 200
        found = await services.entry("a.txt")
    written = [
        (write.path, write.WhichOneof("change"), write.set.body)
        for _, request in writes.asked
        for write in (*request.writes, *(request.next.writes if hasattr(request, "next") else ()))
        if write.path in ("a.txt", "b.txt")
    ]
    assert written == [
        ("a.txt", "set", "old\n"),
        ("a.txt", "set", "new\n"),
        ("b.txt", "set", "b"),
        ("b.txt", "remove", ""),
        ("a.txt", "set", "newer\n"),
    ]
    assert (found.body, found.turn) == ("newer\n", 3)


async def test_a_file_that_is_put_back_in_the_turn_that_changed_it_is_shown_as_it_is(tmp_path):
    """RU204: what was changed, made or removed by one command and undone by the next; what is ignored stays."""
    async with running(tmp_path) as services:
        for name, text in {"a.txt": "old\n", "c.txt": "c", ".env": "x"}.items():
            (services.files / name).write_text(text)
        services.script(
            '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set><set path="b.txt">b</set><rm path="c.txt"/>'
            '<set path=".env">y</set><sh>echo old > a.txt; rm b.txt; printf c > c.txt</sh>'
            '<update status="102">More.</update>',
            DONE,
        )
        assert (await services.until(await services.act())).status == 200
        bodies = {name: (await services.entry(name)).body for name in ("a.txt", "c.txt", ".env")}
        with pytest.raises(MissingError):
            await services.entry("b.txt")
    assert bodies == {"a.txt": "old\n", "c.txt": "c", ".env": "y"}


async def test_what_an_effect_may_have_changed_is_read_again(tmp_path):
    """While the command of the turn runs, somebody else changes what a later command reads."""
    async with running(tmp_path) as services:
        services.script(
            '<set path="known://a">old</set><get path="known://a"/><sh>touch begun; while [ ! -e go ]; do sleep 0.05; done</sh>'
            f'<cp path="known://a" to="known://b"/>{DONE}'
        )
        queued = await services.act()
        while not (services.files / "begun").exists():  # noqa: ASYNC110 - a file tells
            await asyncio.sleep(0.05)
        await services.client.call_tool(services.project, "r", "set", {"path": "known://a"}, "new")
        (services.files / "go").touch()
        await services.until(queued)
        assert (await services.entry("known://b")).body == "new"


async def test_a_turn_writes_its_instructions_tells_that_it_began_reads_the_view_and_stores_the_packet(
    tmp_path, plugin
):
    """RU199, C22: then the model is asked; nothing is assembled a second time."""
    name = plugin("witness_of_steps", WITNESS)
    line = []
    async with running(tmp_path, [Steps(line)], hooks=name, record_after_s=1e6) as services:
        sys.modules["witness_of_steps"].HEARD = line
        services.script(f'<get path="a.txt"/>{DONE}')
        (services.files / "a.txt").write_text("text\n")
        await services.until(await services.act())
        system, user = [(await services.entry(f"{kind}://1")).body for kind in ("system", "user")]
    line = line[line.index(BEGIN) :]
    asked = [step for step in line if not isinstance(step, str) or "." not in step]
    assert asked == [
        BEGIN,
        {"instructions://system", "prompt://{turn}", "log://turn_0/repo/manifest"},
        "Assemble",
        "ReadView",
        "WriteEntries",
        "packet",
        "Generate",
        "EndTurn",
    ]
    assert [step for step in line if step not in asked] == ["turn.started", "turn.response", "turn.completed"]
    assert line.index(BEGIN) < line.index("turn.started") < line.index("packet")
    assert line.index("Generate") < line.index("turn.response") < line.index("turn.completed")
    assert ("## <get" in system, "Do it." in user) == (True, True)


async def test_a_command_has_ended_before_the_next_one_begins(tmp_path):
    """RU132: in the order of the reply, however long each takes."""
    async with running(tmp_path) as services:
        services.script(
            "<sh>sleep 0.3; echo one >> order</sh><sh>echo two >> order; sleep 0.2; echo three >> order</sh>"
            f"<sh>echo four >> order</sh>{DONE}"
        )
        await services.until(await services.act())
        order = (services.files / "order").read_text().split()
        history = [
            (event.message_updated.entry.path.rpartition("/")[2][:12], event.message_updated.entry.state)
            for event in services.events
            if event.message_updated.entry.path.startswith("log://turn_1/sh/")
        ]
    assert order == ["one", "two", "three", "four"]
    assert [name for name, state in history if state == entry_pb2.STATE_RESOLVED] == [
        "sleep_0.3%3B", "echo_two_%3E", "echo_four_%3E"[:12],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "well", "badly"),
    [
        ("get", '<get path="a.txt"/>', '<get path="a.txt"/>'),
        ("rm", '<rm path="a.txt"/>', '<rm path="a.txt"/>'),
        ("sh", "<sh>test -e a.txt</sh>", "<sh>test -e a.txt</sh>"),
    ],
)
async def test_success_and_failure_of_a_command_are_one_record_of_one_shape(tmp_path, tool, well, badly):
    """RU149, RU150: the same command with and without its file; nothing else tells of it."""
    async with running(tmp_path) as services:
        (services.files / "a.txt").write_text("text\n")
        services.script(well + GO_ON, DONE)
        await services.until(await services.act(run="well"))
        (services.files / "a.txt").unlink(missing_ok=True)
        services.script(badly + GO_ON, DONE)
        await services.until(await services.act(run="badly"))
        records = {
            run: [entry async for entry in services.client.list_entries(services.project, run, "log://turn_1/*/**")]
            for run in ("well", "badly")
        }
    good, bad = (next(one for one in records[run] if f"/{tool}/" in one.path) for run in ("well", "badly"))
    assert [one.path for one in records["well"]] == [one.path for one in records["badly"]]
    assert (good.path, good.visibility, good.writer, good.turn) == (bad.path, bad.visibility, bad.writer, bad.turn)
    assert (good.state, good.outcome) == (entry_pb2.STATE_RESOLVED, "")
    assert (bad.state, bad.status >= 400, bad.outcome != "") == (entry_pb2.STATE_FAILED, True, True)
    assert "a.txt" in bad.body


async def test_the_mode_is_said_for_each_loop(tmp_path):
    """RU008: of one run, first to look and then to act."""
    edit = '<set path="a.txt">new</set>'
    async with running(tmp_path) as services:
        (services.files / "a.txt").write_text("old\n")
        services.script(edit + GO_ON, DONE)
        await services.until(await services.ask())
        asked = (services.files / "a.txt").read_text(), await services.status("log://turn_1/set/a.txt")
        services.script(edit + GO_ON, DONE, edit + GO_ON, DONE)
        await services.until(await services.act())
        acted = (services.files / "a.txt").read_text(), await services.status("log://turn_3/set/a.txt")
    assert (asked, acted) == (("old\n", 403), ("new\n", 200))
