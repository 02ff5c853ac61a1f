"""Assemble over a real channel: what it reads, what it answers, what it refuses."""

import asyncio
from hashlib import sha256

import grpc
import pytest
from turnwright.store.v1 import read_pb2
from turnwright.types.v1 import view_pb2
from turnwright.types.v1.packet_pb2 import PACKET_ROLE_SYSTEM, PACKET_ROLE_USER
from turnwright_values.store import SetEntry
from turnwright_values.types import Visibility

from contract.assembler.stack import SECRET, Client, ScriptedStore, at, part, start_assembler
from services import token_for
from turnwright_core.delta_encoding import decode
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.wire.entries import cursor_from_pb, cursor_to_pb
from turnwright_kit.identity.caller import Kind
from turnwright_kit.server import RunningServer
from unit.assembler.entries import entry
from unit.assembler.packet_reader import names, paths, section

PROMPT = entry("prompt://1", "mend the test", mode="act", loop=1, position=1)
SYSTEM = entry("instructions://system", "", persona="You are Ada.", tools=["get"], tool_docs={"get": "## get"})


async def refusal(call) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value


def reason(error: grpc.aio.AioRpcError) -> str:
    return from_rpc(error, "assembler", "here").reason.name


# RU180, RU181, RU183
@pytest.mark.asyncio
async def test_a_packet_is_two_messages_and_a_report(store, client):
    store.says(part(SYSTEM, PROMPT, entry("src/a.py", "pass", position=2), cursor=at(7)))
    answer = await client.assemble()
    assert [role for role, _ in answer.messages] == [PACKET_ROLE_SYSTEM, PACKET_ROLE_USER]
    assert answer.system.endswith("\n\n## get\n\nYou are Ada.")
    assert names(answer.user) == ["prompt", "summary", "visible", "instructions", "budget"]
    report = answer.report
    assert (report.ceiling, report.overflow, cursor_from_pb(report.cursor)) == (90_000, False, at(7))
    assert report.tokens == -(-len(answer.system) // 2) + -(-len(answer.user) // 2)
    assert report.digest == digest_of(answer.pieces(0), answer.pieces(1))


# RU181, C31
@pytest.mark.asyncio
async def test_the_system_message_is_byte_stable_while_tools_and_persona_are(store, client):
    store.says(part(SYSTEM, PROMPT, cursor=at(1)))
    store.says(part(entry("a.py", "x", position=2, turn=1), cursor=at(2)))
    store.says(part(SYSTEM, removed=["a.py"], cursor=at(3)))
    systems = {(await client.assemble(turn=turn)).system for turn in (1, 2, 3)}
    assert len(systems) == 1


@pytest.mark.asyncio
async def test_one_read_makes_a_packet_and_asks_only_for_what_changed(store, client):
    store.says(part(SYSTEM, PROMPT), part(entry("a.py", "one", position=2), cursor=at(1)))
    store.says(part(entry("a.py", "two", position=2), entry("b.py", "new", position=3), cursor=at(5)))
    store.says(part(removed=["b.py"], cursor=at(6)))
    answers = [await client.assemble() for _ in range(3)]
    assert [paths(answer.user, "visible") for answer in answers] == [["a.py"], ["a.py", "b.py"], ["a.py"]]
    assert [section(answer.user, "visible").children[0].body for answer in answers] == ["one", "two", "two"]
    first, second, third = store.requests
    assert first == read_pb2.ReadViewRequest(
        project="p",
        run="r",
        filter=view_pb2.VIEW_FILTER_PACKET,
        include_paths=["instructions://system", "instructions://project"],
    )
    assert (second.after, third.after) == (cursor_to_pb(at(1)), cursor_to_pb(at(5)))


@pytest.mark.asyncio
async def test_a_foreign_cursor_is_answered_by_a_snapshot(store, client):
    store.says(part(PROMPT, entry("a.py", "old", position=2), cursor=at(9)))
    store.says(fault(Reason.CURSOR_FOREIGN, "Another history."))
    store.says(part(PROMPT, entry("b.py", "new", position=2), cursor=at(2, "two")))
    await client.assemble()
    answer = await client.assemble()
    assert (paths(answer.user, "visible"), cursor_from_pb(answer.report.cursor)) == (["b.py"], at(2, "two"))
    assert [request.HasField("after") for request in store.requests] == [False, True, False]


@pytest.mark.parametrize(
    "broken",
    [[part(entry("a.py", "torn", position=2)), fault(Reason.DRAINING, "Later.")], [part(entry("a.py", "torn"))], []],
    ids=["fails half way", "ends without a cursor", "ends at once"],
)
@pytest.mark.asyncio
async def test_a_read_that_breaks_off_is_forgotten(store, client, broken):
    store.says(part(PROMPT, entry("a.py", "whole", position=2), cursor=at(1)))
    store.says(*broken)
    store.says(part(PROMPT, entry("a.py", "whole", position=2), cursor=at(3)))
    await client.assemble()
    error = await refusal(client.assemble())
    assert (error.code(), reason(error) in {"DRAINING", "SERVICE_UNAVAILABLE"}) == (grpc.StatusCode.UNAVAILABLE, True)
    answer = await client.assemble()
    assert section(answer.user, "visible").children[0].body == "whole"
    assert [request.HasField("after") for request in store.requests] == [False, True, False]


@pytest.mark.asyncio
async def test_a_packet_shows_at_least_the_moment_that_was_asked_for(store, client):
    store.says(part(PROMPT, cursor=at(1)))
    store.says(part(entry("a.py", position=2), cursor=at(4)))
    answer = await client.assemble(at_least=at(3))
    assert (paths(answer.user, "visible"), len(store.requests)) == (["a.py"], 2)
    store.says(part(cursor=at(4)))
    await client.assemble(at_least=at(4))
    assert len(store.requests) == 3


@pytest.mark.parametrize("wanted", [at(5), at(4, project=1)], ids=["run", "project"])
@pytest.mark.asyncio
async def test_a_store_that_stays_behind_is_reported(store, client, wanted):
    store.says(part(PROMPT, cursor=at(4)))
    store.says(part(cursor=at(4)))
    error = await refusal(client.assemble(at_least=wanted))
    assert (error.code(), reason(error), len(store.requests)) == (
        grpc.StatusCode.UNAVAILABLE, "SERVICE_UNAVAILABLE", 2,
    )  # fmt: skip


@pytest.mark.asyncio
async def test_a_moment_of_another_history_is_refused(store, client):
    store.says(part(PROMPT, cursor=at(4)))
    error = await refusal(client.assemble(at_least=at(1, "other")))
    assert (error.code(), reason(error)) == (grpc.StatusCode.OUT_OF_RANGE, "CURSOR_FOREIGN")


@pytest.mark.asyncio
async def test_errors_of_the_store_reach_the_caller(store, client):
    store.says(fault(Reason.RUN_NOT_FOUND, "There is no such run.", project="p", run="r"))
    error = await refusal(client.assemble())
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")


@pytest.mark.asyncio
async def test_without_a_store_the_call_is_refused_and_works_once_there_is_one(tmp_path):
    assembler = await start_assembler(tmp_path)
    client = Client(assembler.address)
    error = await refusal(client.assemble())
    assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "SERVICE_UNAVAILABLE")
    scripted = ScriptedStore()
    server = RunningServer(scripted.service(), f"unix:{tmp_path}/store.sock", SECRET, 0.1)
    await server.start()
    for _ in range(1200):
        scripted.script = [[part(PROMPT, cursor=at(1))]]
        try:
            answer = await client.assemble()
            break
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.05)
    assert names(answer.user)[0] == "prompt"
    await client.channel.close()
    await assembler.stop()
    await server.stop()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"project": ""}, "INVALID_FIELD project"), ({"run": ""}, "INVALID_FIELD run"),
        ({"run": "r" * 129}, "LIMIT_EXCEEDED run"), ({"turn": 0}, "INVALID_FIELD turn"),
        ({"loop": 0}, "INVALID_FIELD loop"), ({"context_length": 0}, "INVALID_FIELD context_length"),
        ({"calibration": -0.1}, "INVALID_FIELD calibration"), ({"calibration": 101}, "INVALID_FIELD calibration"),
        ({"calibration": float("nan")}, "INVALID_FIELD calibration"),
    ],
)  # fmt: skip
@pytest.mark.asyncio
async def test_a_malformed_request_is_refused_before_anything_is_read(store, client, changes, expected):
    error = await refusal(client.assemble(**changes))
    told = from_rpc(error, "assembler", "here")
    assert (error.code(), f"{told.reason.name} {told.metadata['field']}") == (
        grpc.StatusCode.INVALID_ARGUMENT, expected,
    )  # fmt: skip
    assert store.requests == []


@pytest.mark.parametrize("token", [None, "wrong", "tw1.system.operator.00"])
@pytest.mark.asyncio
async def test_no_call_goes_unauthenticated(tmp_path, store, client, token):
    stranger = Client(f"unix:{tmp_path}/assembler.sock", token)
    error = await refusal(stranger.assemble())
    assert (error.code(), store.requests) == (grpc.StatusCode.UNAUTHENTICATED, [])
    await stranger.channel.close()


@pytest.mark.asyncio
async def test_it_answers_the_services_of_its_deployment_only(tmp_path, store, client):
    guest = Client(
        f"unix:{tmp_path}/assembler.sock", token_for("ada", Kind.PLUGIN, audience="assembler", secret=SECRET)
    )
    error = await refusal(guest.assemble())
    assert (error.code(), store.requests) == (grpc.StatusCode.PERMISSION_DENIED, [])
    await guest.channel.close()


# RU064, RU215, RU218: the text already shows what the effects will write.
@pytest.mark.asyncio
async def test_a_packet_over_its_ceiling_comes_back_demoted_with_its_effects(store, client):
    rows = [PROMPT, *(entry(f"known://{n}", "fact " * 400, position=2 + n, turn=1) for n in range(5))]
    store.says(part(*rows, cursor=at(1)))
    answer = await client.assemble(turn=2, context_length=8_000)
    assert ("<visible>" in answer.user, answer.report.overflow) == (False, False)
    assert answer.report.tokens <= answer.report.ceiling == 7200
    demotions = [write for write in answer.effects if write.path.startswith("known://")]
    assert {write.change for write in demotions} == {SetEntry(visibility=Visibility.SUMMARIZED)}
    assert [write.path for write in answer.effects][-1] == "log://turn_2/error/budget_previous_turn"
    assert "budget_previous_turn" not in answer.user


# RU217
@pytest.mark.asyncio
async def test_a_packet_that_cannot_fit_says_so(store, client):
    store.says(part(PROMPT, entry("a.py", "x" * 4000, position=2, turn=1), cursor=at(1)))
    answer = await client.assemble(turn=9, context_length=500)
    assert (answer.report.overflow, answer.report.ceiling) == (True, 450)
    figures, error = answer.effects
    assert (figures.path, figures.change.visibility) == ("prompt://1", Visibility.UNSPECIFIED)
    assert error.path == "log://turn_9/error/budget_overflow"
    assert error.change.body.endswith("they stay as they are:\n* a.py\n* prompt://1")
    assert ("x" * 4000 in answer.user, answer.report.tokens > 2 * answer.report.ceiling) == (True, True)


# RU214, C16
@pytest.mark.asyncio
async def test_calibration_decides_and_is_not_shown(store, client):
    rows = [PROMPT, entry("a.py", "x" * 4000, position=2, turn=1)]
    for _ in range(2):
        store.says(part(*rows, cursor=at(1)))
    plain = await client.assemble(turn=2)
    tight = {"turn": 2, "context_length": plain.report.tokens * 10 // 9 + 2}
    assert (await client.assemble(**tight)).user.count("<visible>") == 1
    store.says(part(cursor=at(1)))
    calibrated = await client.assemble(**tight, calibration=1.05)
    assert "<visible>" not in calibrated.user
    assert section(calibrated.user, "budget").attributes["tokenUsage"] == str(calibrated.report.tokens)


# Architecture 12.4
@pytest.mark.parametrize("letter", ["x", "🙂"])
@pytest.mark.asyncio
async def test_a_packet_of_ten_thousand_entries_travels_in_small_parts(store, client, letter):
    rows = [entry(f"known://{n}", letter * 100, position=n) for n in range(10_000)]
    for start in range(0, 10_000, 500):
        store.script = store.script or [[]]
        store.script[0].append(part(*rows[start : start + 500], cursor=at(1) if start == 9_500 else None))
    answer = await client.assemble(context_length=100_000_000)
    assert max(message.ByteSize() for message in answer.parts) <= CHUNK_BYTES
    assert len(answer.parts) > 5
    assert (len(section(answer.user, "visible").children), answer.report.overflow) == (10_000, False)


@pytest.mark.asyncio
async def test_concurrent_calls_for_one_run_give_the_same_bytes_as_one_by_one(store, client):
    store.says(part(PROMPT, entry("a.py", "one", position=2), cursor=at(1)))
    for _ in range(7):
        store.says(part(cursor=at(1)))
    answers = await asyncio.gather(*(client.assemble() for _ in range(8)))
    assert len({(answer.user, answer.report.digest) for answer in answers}) == 1
    assert [request.HasField("after") for request in store.requests] == [False] + [True] * 7


@pytest.mark.asyncio
async def test_with_no_cache_every_packet_is_made_from_a_snapshot(tmp_path, store):
    server = await start_assembler(tmp_path, assembler_cache_bytes_max=0)
    client = Client(server.address)
    for _ in range(2):
        store.says(part(PROMPT, cursor=at(1)))
    assert (await client.assemble()).user == (await client.assemble()).user
    assert [request.HasField("after") for request in store.requests] == [False, False]
    await client.channel.close()
    await server.stop()


def digest_of(system, user):
    """The digest of a packet, made from nothing but its pieces."""
    lines = [
        f"{role} {sha256(b''.join(sha256(piece.encode()).digest() for piece in pieces)).hexdigest()}\n"
        for role, pieces in (("system", system), ("user", user))
    ]
    return sha256("".join(lines).encode()).hexdigest()


def pieces_of(answer):
    """The pieces of both messages, in one row."""
    return [*answer.pieces(0), *answer.pieces(1)]


@pytest.mark.asyncio
async def test_a_packet_is_told_by_what_differs_from_the_one_that_the_caller_has(client, store):
    store.says(part(PROMPT, entry("a.py", "one", position=2), cursor=at(1)))
    store.says(part(entry("b.py", "two", position=3), cursor=at(2)))
    first = await client.assemble()
    second = await client.assemble(turn=2, base_digest=first.report.digest)
    pieces = pieces_of(second)
    new = [piece for piece in pieces if isinstance(piece, str)]
    assert [name for name in ("a.py", "b.py") if any(name in piece for piece in new)] == ["b.py"]
    whole = decode(pieces, pieces_of(first))
    assert second.report.digest == digest_of(whole[:1], whole[1:])
    assert '"b.py"' in "".join(whole)


@pytest.mark.asyncio
@pytest.mark.parametrize("base_digest", ["", "0" * 64])
async def test_whoever_has_another_packet_is_told_the_whole(client, store, base_digest):
    store.says(part(PROMPT, entry("a.py", "one", position=2), cursor=at(1)))
    store.says(part(cursor=at(1)))
    first = await client.assemble()
    second = await client.assemble(base_digest=base_digest)
    assert (second.user, second.system) == (first.user, first.system)


@pytest.mark.asyncio
async def test_a_long_text_comes_in_pieces_and_parts(client, store):
    """Characters of four bytes: no part is over 256 KiB, and what was sent once is copied."""
    body = "\U0001f600" * 100_000
    store.says(part(PROMPT, entry("a.py", body, position=2), cursor=at(1)))
    store.says(part(cursor=at(1)))
    wide = {"context_length": 10_000_000}
    first = await client.assemble(**wide)
    second = await client.assemble(**wide, base_digest=first.report.digest)
    assert max(message.ByteSize() for message in first.parts) <= 256 * 1024
    assert section(first.user, "visible").children[0].body == body
    assert sum(message.ByteSize() for message in second.parts) < 5_000
    assert (len(first.parts) > 3, len(second.parts)) == (True, 1)
    assert "".join(decode(pieces_of(second), pieces_of(first))) == first.system + first.user
