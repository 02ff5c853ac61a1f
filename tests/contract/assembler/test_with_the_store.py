"""The assembler in front of a real store: what is written stands in the next packet, and nothing is written by it."""

import random
from dataclasses import dataclass

import grpc
import pytest
import pytest_asyncio
from turnwright.schemes.v1 import scheme_service_pb2, scheme_service_pb2_grpc
from turnwright.store.v1 import read_pb2
from turnwright.types.v1 import scheme_pb2, view_pb2
from turnwright_values.store import AppendEntry, EntryWrite, RemoveEntry
from turnwright_values.types import State, Tier, Visibility

from contract.assembler.ledger import INSTRUCTIONS, TOOLS, CountingProxy, Ledger, put
from contract.assembler.stack import SECRET, Answer, Client
from turnwright_assembler import wiring as assembler_wiring
from turnwright_assembler.config import AssemblerSettings
from turnwright_core.errors import Reason
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.wire.entries import entry_from_pb
from turnwright_kit.server import RunningServer
from turnwright_store import wiring as store_wiring
from turnwright_store.config import StoreSettings
from unit.assembler.packet_reader import names, paths, section

VISIBLE, SUMMARIZED, ARCHIVED = Visibility.VISIBLE, Visibility.SUMMARIZED, Visibility.ARCHIVED


@dataclass
class Stack:
    """A store, a proxy that counts, an assembler that remembers and one that does not."""

    store: str
    proxy: CountingProxy
    ledger: Ledger
    warm: Client
    cold: Client

    async def packet(self, client: Client | None = None, **changes) -> Answer:
        """The packet of the ledger's turn."""
        wanted = {
            "run": self.ledger.run, "turn": self.ledger.turn, "loop": self.ledger.loop, "at_least": self.ledger.cursor,
        }  # fmt: skip
        return await (client or self.warm).assemble(**(wanted | changes))

    async def stored(self, path: str):
        """An entry as the run sees it."""
        request = read_pb2.GetEntriesRequest(**self.ledger.key, paths=[path])
        answer = await self.ledger.stub.GetEntries(request, **self.ledger.call)
        return entry_from_pb(answer.entries[0])


@pytest_asyncio.fixture
async def stack(tmp_path):
    addresses = {name: f"unix:{tmp_path}/{name}.sock" for name in ("store", "proxy", "warm", "cold")}
    store = RunningServer(store_wiring.build(StoreSettings(home=tmp_path), SECRET), addresses["store"], SECRET, 1)
    await store.start()
    proxy = CountingProxy(addresses["store"])
    await proxy.start(addresses["proxy"])
    servers, clients = [], []
    for name, kept in (("warm", 10**8), ("cold", 0)):
        settings = AssemblerSettings(home=tmp_path, store=addresses["proxy"], assembler_cache_bytes_max=kept)
        servers.append(RunningServer(assembler_wiring.build(settings, SECRET), addresses[name], SECRET, 1))
        await servers[-1].start()
        clients.append(Client(addresses[name]))
    ledger = Ledger(addresses["store"], SECRET)
    await ledger.open(str(tmp_path))
    yield Stack(addresses["store"], proxy, ledger, *clients)
    for client in (ledger, *clients):
        await client.channel.close()
    for server in servers:
        await server.stop()
    await proxy.stop()
    await store.stop()


@pytest.mark.asyncio
async def test_a_packet_is_one_read_and_no_write(stack):
    await stack.ledger.begin_loop("mend the test")
    before = await stack.stored("prompt://1")
    for _ in range(3):
        await stack.packet()
        await stack.packet(stack.cold)
    assert stack.proxy.methods == ["ReadView"] * 6
    assert await stack.stored("prompt://1") == before


# RU180, RU181, RU183, RU196, C31
@pytest.mark.asyncio
async def test_the_system_message_stays_while_the_work_goes_on(stack):
    await stack.ledger.begin_loop("mend the test")
    systems = []
    for turn in range(3):
        systems.append((await stack.packet()).system)
        await stack.ledger.next_turn(
            put(f"known://{turn}", "a fact"),
            put(INSTRUCTIONS, "", writer=Tier.SYSTEM, **TOOLS),
        )
    assert len(set(systems)) == 1
    assert "\n\n## get\n\n## set\n\n# Persona" in systems[0]
    await stack.ledger.write(put(INSTRUCTIONS, "", writer=Tier.SYSTEM, **(TOOLS | {"tools": ["get"]})))
    assert (await stack.packet()).system != systems[0]


# RU184, C23
@pytest.mark.asyncio
async def test_the_prompt_is_byte_equal_through_the_loop(stack):
    await stack.ledger.begin_loop("mend the test")
    prompts, budgets = [], []
    for turn in range(4):
        answer = await stack.packet()
        assert answer.user.startswith("<prompt tokenUsage=")
        prompts.append(answer.user.split("</prompt>")[0])
        budgets.append(section(answer.user, "budget").attributes)
        assert [write.path for write in answer.effects] == (["prompt://1"] if turn == 0 else [])
        await stack.ledger.next_turn(*answer.effects, put(f"known://{turn}", "fact " * 100))
    assert len(set(prompts)) == 1
    assert f'tokenUsage="{budgets[0]["tokenUsage"]}" tokensFree="{budgets[0]["tokensFree"]}"' in prompts[0]
    assert len({tuple(each.items()) for each in budgets}) == 4


# RU188, RU193, RU194, RU195
@pytest.mark.asyncio
async def test_a_second_loop_has_its_own_prompt_and_the_whole_past(stack):
    await stack.ledger.begin_loop("first task")
    await stack.ledger.write(
        put("log://turn_1/get/a", "read", tool="get", target="a.py"),
        put("known://seen", "a fact"), put("known://put-away", "a fact", visibility=SUMMARIZED),
        put("src/a.py", "pass"), put("unknown://open", "why?"),
    )  # fmt: skip
    await stack.ledger.end_turn(loop_status=200)
    await stack.ledger.begin_loop("second task")
    user = (await stack.packet()).user
    assert section(user, "prompt").order == "second task"
    log = [(node.name, node.order or node.body) for node in section(user, "log").children]
    assert log == [("prompt", "first task"), ("get", "read")]
    assert paths(user, "summary") == ["known://seen", "known://put-away", "src/a.py"]
    assert paths(user, "visible") == ["known://seen", "src/a.py"]
    assert paths(user, "unknowns") == ["unknown://open"]


# RU187
@pytest.mark.asyncio
async def test_an_archived_prompt_is_gone_and_can_come_back(stack):
    await stack.ledger.begin_loop("mend the test")
    before = await stack.packet()
    await stack.ledger.write(*before.effects, put("prompt://1", visibility=ARCHIVED))
    assert "prompt" not in names((await stack.packet()).user)
    await stack.ledger.write(put("prompt://1", visibility=VISIBLE))
    after = await stack.packet()
    assert (names(after.user)[0], after.user, after.effects) == ("prompt", before.user, [])


# RU204, RU205
@pytest.mark.parametrize("path", ["src/a.py", "known://a", "skill://a", "https://a"])
@pytest.mark.asyncio
async def test_a_mutation_stands_in_the_next_packet_without_a_get(stack, path):
    await stack.ledger.begin_loop("mend the test")
    await stack.ledger.write(put(path, "before"))
    assert section((await stack.packet()).user, "visible").children[0].body == "before"
    await stack.ledger.next_turn(put(path, "after"))
    assert section((await stack.packet()).user, "visible").children[0].body == "after"
    await stack.ledger.next_turn(put(path, visibility=SUMMARIZED))
    user = (await stack.packet()).user
    assert (section(user, "summary").children[0].body, "visible" in names(user)) == ("after", False)
    await stack.ledger.next_turn(put(path, "later"))
    user = (await stack.packet()).user
    assert (section(user, "summary").children[0].body, "visible" in names(user)) == ("later", False)
    await stack.ledger.next_turn(EntryWrite(path, RemoveEntry(), Tier.PLUGIN))
    assert path not in (await stack.packet()).user


# RU020: a project's files are shared, so another run's write reaches this run's packet.
@pytest.mark.asyncio
async def test_a_file_that_another_run_wrote_is_fresh(stack):
    await stack.ledger.begin_loop("mend the test")
    await stack.ledger.write(put("src/a.py", "mine"))
    assert section((await stack.packet()).user, "visible").children[0].body == "mine"
    other = Ledger(stack.store, SECRET, run="other")
    await other.begin_loop("another task")
    await other.write(put("src/a.py", "theirs"), put("known://theirs", "not shared"))
    user = (await stack.packet()).user
    assert [(node.attributes["path"], node.body) for node in section(user, "visible").children] == [
        ("src/a.py", "theirs")
    ]
    await other.channel.close()


# RU177, RU082, RU083
@pytest.mark.asyncio
async def test_a_channel_grows_at_102_and_stays_out_of_the_log(stack):
    await stack.ledger.begin_loop("run it")
    channel = "sh://turn_1/make_1"
    await stack.ledger.write(
        put("log://turn_1/sh/make", "started", tool="sh", target="make"),
        put(channel, "", state=State.STREAMING, visibility=SUMMARIZED, command="make", channel=1, summary="make"),
    )
    shown = []
    for text in ("one\n", "two\n", "three\n"):
        await stack.ledger.write(EntryWrite(channel, AppendEntry(text), Tier.PLUGIN))
        user = (await stack.packet()).user
        [node] = section(user, "summary").children
        shown.append((node.name, node.attributes["status"], node.attributes["summary"], node.body))
        assert paths(user, "log") == ["log://turn_1/sh/make"]
    assert shown == [("sh", "102", "make", body) for body in ("one\n", "one\ntwo\n", "one\ntwo\nthree\n")]
    await stack.ledger.write(put(channel, state=State.FAILED, outcome="exit:500", visibility=VISIBLE))
    [node] = section((await stack.packet()).user, "visible").children
    assert (node.attributes["status"], node.attributes["outcome"]) == ("500", "exit:500")


KINDS = [
    "src/big.py",
    "known://big",
    "skill://big",
    "https://big",
    "sh://turn_1/big_1",
    "unknown://big",
    "update://big",
]


# RU064, RU177, RU215, RU218: the store accepts the effects, and the model reads about them a turn later.
@pytest.mark.asyncio
async def test_a_demotion_is_committed_keeps_status_and_is_reported(stack):
    await stack.ledger.begin_loop("mend the test")
    await stack.ledger.write(
        *(put(path, "x" * 3000) for path in KINDS),
        put("log://turn_1/get/big", "x" * 3000, tool="get", state=State.FAILED, outcome="not_found:404"),
        put("sh://turn_1/live_1", "x" * 3000, state=State.STREAMING),
    )
    first = await stack.packet()
    await stack.ledger.next_turn(*first.effects)
    statuses = {path: (await stack.stored(path)).status for path in KINDS}
    tight = first.report.tokens
    second = await stack.packet(context_length=tight)
    assert (second.report.tokens <= second.report.ceiling < first.report.tokens, second.report.overflow) == (
        True,
        False,
    )
    await stack.ledger.write(*second.effects)
    for path in [*KINDS, "log://turn_1/get/big", "sh://turn_1/live_1"]:
        entry = await stack.stored(path)
        assert (entry.visibility, entry.turn) == (SUMMARIZED, 1)
        assert entry.status == statuses.get(path, {"log": 404, "sh": 102}.get(entry.scheme))
    third = await stack.packet(context_length=tight)
    assert third.effects == []
    told = section(third.user, "log").children[-1]
    assert (told.name, told.attributes["status"], told.attributes["outcome"]) == ("error", "413", "budget:413")
    assert all(f"* {path}" in told.body for path in KINDS)


# RU216, RU217, RU218
@pytest.mark.asyncio
async def test_a_prompt_that_cannot_fit_ends_in_413(stack):
    await stack.ledger.begin_loop("a long task " * 2000)
    answer = await stack.packet(context_length=1000)
    assert answer.report.overflow
    await stack.ledger.write(*answer.effects)
    entry = await stack.stored("prompt://1")
    # Nothing is sent, so nothing gives way.
    assert (entry.visibility, entry.attributes["mode"], entry.body) == (VISIBLE, "act", "a long task " * 2000)
    assert entry.attributes["tokenUsage"] == answer.report.tokens
    overflow = await stack.stored("log://turn_1/error/budget_overflow")
    assert (overflow.state, overflow.outcome, overflow.status) == (State.FAILED, "budget:413", 413)
    assert "* prompt://1" in overflow.body


WRITABLE = [
    "src/a.py", "src/b.py", "known://a", "known://b", "known://c", "unknown://a", "sh://turn_1/x_1", "log://turn_1/set/a",
    "update://a", "skill://a",
]  # fmt: skip


def random_write(dice: random.Random) -> EntryWrite:
    path = dice.choice(WRITABLE)
    if dice.random() < 0.15:
        return EntryWrite(path, RemoveEntry(), Tier.PLUGIN)
    return put(
        path,
        dice.choice(["short", "line\n" * dice.randrange(400), ":::known://a\n</log>", ""]),
        visibility=dice.choice([VISIBLE, SUMMARIZED, ARCHIVED, Visibility.UNSPECIFIED]),
        **({"tool": "set", "summary": f"s{dice.randrange(9)}"} if dice.random() < 0.5 else {}),
    )


# RU204: same stored state and request, same bytes.
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.asyncio
async def test_a_warm_and_a_cold_assembler_give_the_same_bytes(stack, seed):
    dice = random.Random(seed)
    await stack.ledger.begin_loop("mend the test")
    for _ in range(12):
        await stack.ledger.write(*(random_write(dice) for _ in range(dice.randrange(1, 6))))
        wanted = {"context_length": dice.choice([6_000, 9_000, 100_000])}
        warm, cold = await stack.packet(**wanted), await stack.packet(stack.cold, **wanted)
        assert (warm.system, warm.user) == (cold.system, cold.user)
        assert warm.report == cold.report
        if dice.random() < 0.4:
            await stack.ledger.next_turn(*warm.effects)


async def told_packet(stack: Stack) -> Answer:
    """The packet by what the store told since the one before."""
    told, stack.ledger.told = stack.ledger.told, []
    return await stack.packet(view_changes=told)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.asyncio
async def test_an_assembler_that_is_told_gives_the_bytes_of_one_that_reads(stack, seed):
    dice = random.Random(seed)
    await stack.ledger.begin_loop("mend the test")
    for _ in range(12):
        await stack.ledger.write(*(random_write(dice) for _ in range(dice.randrange(1, 6))))
        told, cold = await told_packet(stack), await stack.packet(stack.cold)
        assert (told.system, told.user) == (cold.system, cold.user)
        assert told.report == cold.report
        await stack.ledger.go_on(*(random_write(dice) for _ in range(dice.randrange(3))))


@pytest.mark.asyncio
async def test_an_assembler_that_is_told_all_reads_nothing(stack):
    await stack.ledger.begin_loop("mend the test")
    await told_packet(stack)
    stack.proxy.methods.clear()
    for turn in range(3):
        await stack.ledger.write(put(f"known://{turn}", "a fact"))
        await stack.ledger.go_on(put(INSTRUCTIONS, "", writer=Tier.SYSTEM, **(TOOLS | {"tools": ["get"][:turn]})))
        answer = await told_packet(stack)
        assert section(answer.user, "visible").children[turn].body == "a fact"
        assert ("## get" in answer.system) is (turn > 0)
    assert stack.proxy.methods == []


async def foreign_write(stack: Stack) -> None:
    """Another one's write, of which the owner is told nothing."""
    told = stack.ledger.told
    stack.ledger.told = []
    await stack.ledger.write(put("known://foreign", "seen"))
    stack.ledger.told = told


async def project_write(stack: Stack) -> None:
    other = Ledger(stack.store, SECRET, run="other")
    await other.begin_loop("another task")
    await other.write(put("src/foreign.py", "seen"))
    await other.channel.close()
    await stack.ledger.write(put("src/foreign.py", visibility=VISIBLE))


async def new_scheme(stack: Stack) -> None:
    scheme = scheme_pb2.Scheme(name="fact", category="SCHEME_CATEGORY_DATA", model_visible=True)
    schemes = scheme_service_pb2_grpc.SchemeServiceStub(stack.ledger.channel)
    await schemes.SetScheme(scheme_service_pb2.SetSchemeRequest(scheme=scheme), **stack.ledger.call)
    await stack.ledger.write(put("fact://foreign", "seen"))


@pytest.mark.parametrize("gap", [foreign_write, project_write, new_scheme])
@pytest.mark.asyncio
async def test_behind_a_gap_an_assembler_reads(stack, gap):
    await stack.ledger.begin_loop("mend the test")
    await told_packet(stack)
    await stack.ledger.write(put("known://a", "mine"))
    await gap(stack)
    await stack.ledger.go_on(put("known://b", "mine"))
    stack.proxy.methods.clear()
    told, cold = await told_packet(stack), await stack.packet(stack.cold)
    assert stack.proxy.methods[0] == "ReadView"
    assert (told.system, told.user) == (cold.system, cold.user)
    assert "seen" in told.user


@pytest.mark.asyncio
async def test_more_changes_than_a_request_may_bring_are_refused(stack):
    await stack.ledger.begin_loop("mend the test")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stack.packet(view_changes=[view_pb2.ViewChange()] * 65)
    error = from_rpc(refused.value, "assembler", "")
    assert (error.reason, error.metadata["field"]) == (Reason.LIMIT_EXCEEDED, "view_changes")


@pytest.mark.asyncio
async def test_a_packet_of_ten_thousand_stored_entries_is_read_in_one_call(stack):
    await stack.ledger.begin_loop("mend the test")
    await stack.ledger.write(*(put(f"known://{n}", f"fact {n}") for n in range(9_990)))
    answer = await stack.packet(context_length=10_000_000)
    assert len(section(answer.user, "visible").children) == 9_990
    await stack.ledger.write(put("known://7", "changed"))
    stack.proxy.methods.clear()
    answer = await stack.packet(context_length=10_000_000)
    assert section(answer.user, "visible").children[7].body == "changed"
    assert stack.proxy.methods == ["ReadView"]
