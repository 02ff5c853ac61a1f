"""Every packet explains itself: its pieces, why each is in, what was demoted by which step, where the prefix breaks."""

import asyncio
import hashlib
import sqlite3
from contextlib import closing

import pytest
import pytest_asyncio
from turnwright.executor.v1 import explain_pb2
from turnwright.types.v1 import explanation_pb2 as pb
from turnwright.types.v1 import settings_pb2
from turnwright_values.types import Tier

from contract.executor.test_pipeline import DONE
from contract.store.harness import Client as StoreClient
from services import SECRET, running
from turnwright_core.chat.prompt_edits import append_to
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.prompt_edits import edit_to_pb

MORE = '<update status="102">More.</update>'
SOURCE = "".join(f"def step_{number}(): return {number * 7919 % 1009}\n" for number in range(40))
BUSY = {"fold_s": 0.01}
"""The store's chores come so often that they are soon done."""


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def services(request, tmp_path, monkeypatch):
    """The services on each database."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    on = {"db": request.getfixturevalue("postgres_url")} if request.param == "postgres" else {}
    async with running(tmp_path, store_settings={**on, **BUSY}) as made:
        (made.files / "a.py").write_text(SOURCE)
        yield made


async def sent(services, turn: int, run: str = "r") -> str:
    return (await services.entry(f"system://{turn}", run)).body + (await services.entry(f"user://{turn}", run)).body


def of(told: pb.PacketExplanation, section: str, path: str) -> pb.ExplainedPiece:
    return next(piece for piece in told.pieces if (piece.section, piece.path) == (section, path))


@pytest.mark.asyncio
async def test_the_bytes_are_those_that_were_sent_and_each_piece_says_what_it_is(services):
    services.script(f'<get path="a.py"/>{MORE}', f'<set path="known://b">{SOURCE[::-1]}</set>{MORE}', MORE, DONE)
    assert (await services.until(await services.act())).status == 200
    for turn in range(1, 5):
        told = await services.client.explain_packet(services.project, "r", turn)
        text = (await sent(services, turn)).encode()
        assert (told.turn, told.bytes, list(told.gaps), told.preview) == (turn, len(text), [], False)
        assert told.digest == told.stored_digest
        assert told.stored_render_version == told.render_version
        begins = [piece.begin for piece in told.pieces]
        assert begins == [sum(piece.bytes for piece in told.pieces[:place]) for place in range(len(begins))]
        assert sum(piece.tokens for piece in told.pieces) == told.tokens
        assert sum(total.tokens for total in told.kinds) == told.tokens
        for piece in told.pieces:
            if piece.path and piece.kind not in (pb.PIECE_KIND_TOOL, pb.PIECE_KIND_SYSTEM, pb.PIECE_KIND_PERSONA):
                assert piece.path.encode() in text[piece.begin : piece.begin + piece.bytes]
    file = of(told, "visible", "a.py")
    assert (file.kind, file.form, file.why) == (
        pb.PIECE_KIND_FILE, pb.PIECE_FORM_WHOLE, "Visible; last touched in turn 1.",
    )  # fmt: skip
    assert of(told, "prompt", "prompt://1").why == "The task of loop 1."
    assert of(told, "log", "log://turn_2/set/known%3A/b").kind == pb.PIECE_KIND_RECORD
    assert of(told, "system", "get").kind == pb.PIECE_KIND_TOOL


@pytest.mark.asyncio
async def test_the_byte_where_a_packet_leaves_the_one_before(services):
    services.script(f'<get path="a.py"/>{MORE}', f'<set path="known://b">fact</set>{MORE}', DONE)
    await services.until(await services.act())
    assert not (await services.client.explain_packet(services.project, "r", 1)).HasField("prefix")
    for turn, section, path in ((2, "summary", ""), (3, "summary", "known://b")):
        told = await services.client.explain_packet(services.project, "r", turn)
        before, now = (await sent(services, turn - 1)).encode(), (await sent(services, turn)).encode()
        shared = next(place for place, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1])
        prefix = told.prefix
        assert (prefix.before_turn, prefix.bytes, prefix.section, prefix.path) == (turn - 1, shared, section, path)
        assert prefix.tokens == -(-len(now[:shared].decode()) // 2)


@pytest.mark.asyncio
async def test_what_is_not_there_is_refused_by_name(services):
    services.script(DONE)
    await services.until(await services.act())
    both = explain_pb2.ExplainPacketRequest(project=services.project, run="r", turn=1, next=True)
    calls = {
        Reason.RUN_NOT_FOUND: services.client.explain_packet(services.project, "x"),
        Reason.TURN_NOT_FOUND: services.client.explain_packet(services.project, "r", 7),
        Reason.LIMIT_EXCEEDED: services.client.explain_packet(services.project, "r", 1, 5001),
        Reason.INVALID_FIELD: services.client._peer.call(services.client._stub.ExplainPacket, both),
    }
    for reason, call in calls.items():
        with pytest.raises(TurnwrightError) as caught:
            await call
        assert caught.value.reason is reason


@pytest.mark.asyncio
async def test_an_answer_is_bounded_and_says_what_it_leaves_out(services):
    services.script(f'<get path="a.py"/>{MORE}', DONE)
    await services.until(await services.act())
    whole = await services.client.explain_packet(services.project, "r")
    some = await services.client.explain_packet(services.project, "r", 0, 3)
    none = await services.client.explain_packet(services.project, "r", 0, 0)
    kept = sorted(whole.pieces, key=lambda piece: -piece.tokens)[:3]
    assert sorted(some.pieces, key=lambda piece: -piece.tokens) == kept
    assert some.pieces_left_out == len(whole.pieces) - 3
    assert some.tokens_left_out == whole.tokens - sum(piece.tokens for piece in kept)
    assert (len(none.pieces), none.kinds) == (0, whole.kinds)


@pytest.mark.asyncio
async def test_a_preview_is_what_the_next_turn_is_sent_and_writes_nothing(services):
    services.script(f'<get path="a.py"/>{MORE}', f"<sh>true</sh>{MORE}", DONE)
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    state = await everything(services)
    await settled(services)
    rows = tables(services)
    previews = [await services.client.preview_packet(services.project, "r") for _ in range(3)]
    told = await services.client.explain_packet(services.project, "r", 1)
    assert (told.digest, await everything(services), tables(services)) == (told.stored_digest, state, rows)
    assert previews[0] == previews[1] == previews[2]
    assert (previews[0].turn, previews[0].preview, previews[0].prefix.before_turn) == (3, True, 2)
    assert not previews[0].stored_digest


@pytest.mark.asyncio
@pytest.mark.parametrize("settings", [{"assembly": settings_pb2.ASSEMBLY_TRANSCRIPT}, {"no_repo": True}])
async def test_a_preview_before_the_first_turn_is_what_that_is_sent(tmp_path, monkeypatch, settings):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    # Work that is queued at the store waits until a client tells this executor of more.
    async with running(tmp_path, store_settings=BUSY, recover=False) as services:
        (services.files / "AGENTS.md").write_text("Be brief.\n")
        await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m", persona="I am P."))
        bare = await services.client.preview_packet(services.project, "r")
        edits = [edit_to_pb(append_to("last-user", "Mind it."))]
        wanted = settings_pb2.LoopSettings(mode=settings_pb2.MODE_ACT, model="m", yolo=True, edits=edits, **settings)
        store = StoreClient(services.addresses["store"], SECRET, Tier.SYSTEM)
        await store.call("EnqueueLoop", project=services.project, run="r", prompt="Do it.", settings=wanted)
        await store.close()
        await settled(services)
        rows = tables(services)
        previews = [await services.client.preview_packet(services.project, "r") for _ in range(2)]
        assert tables(services) == rows
        services.script("It is done.", DONE, DONE)
        await services.until(await services.act("And this."))
        told = await services.client.explain_packet(services.project, "r", 1)
    assert previews[0] == previews[1]
    assert (previews[0].turn, previews[0].loop, previews[0].preview, list(previews[0].gaps)) == (1, 1, True, [])
    assert [(piece.kind, piece.path, piece.bytes) for piece in previews[0].pieces] == [
        (piece.kind, piece.path, piece.bytes) for piece in told.pieces
    ]
    assert (previews[0].digest, previews[0].assembly) == (told.stored_digest, told.assembly)
    kinds = {total.kind for total in previews[0].kinds}
    assert kinds >= {pb.PIECE_KIND_TOOL, pb.PIECE_KIND_PROMPT, pb.PIECE_KIND_EDIT}
    assert (pb.PIECE_KIND_PROJECT_INSTRUCTIONS in kinds) is not settings.get("no_repo", False)
    # Without a task there is no prompt, and all else is as it will be.
    assert list(bare.gaps) == ["No task waits: the prompt of the next one is not in it."]
    assert pb.PIECE_KIND_PROMPT not in {total.kind for total in bare.kinds}
    assert pb.PIECE_KIND_PERSONA in {total.kind for total in bare.kinds}


TABLES = ("entries", "versions", "views", "scopes", "runs", "loops", "turns", "packets", "blocks")


def tables(services) -> list[tuple]:
    """Every row of the tables behind a run, where the database is a file."""
    file = services.root / "home" / "turnwright.db"
    if not file.exists():
        return []
    with closing(sqlite3.connect(file)) as database:
        return [row for table in TABLES for row in database.execute(f"SELECT '{table}', * FROM {table}")]


async def settled(services) -> None:
    """Wait until the store's chores have nothing left to do: nothing changes from one look to the next."""
    for _ in range(50):
        before = tables(services)
        await asyncio.sleep(0.1)
        if tables(services) == before:
            return


async def everything(services) -> str:
    """All that the store has of the run, as one digest: entries with revisions, history of each, turns, cursor."""
    answer = await services.client.get_run(services.project, "r", turns_max=1000, history_max=1000)
    entries = [entry async for entry in services.client.list_entries(services.project, "r", "**")]
    texts = [
        answer.SerializeToString(deterministic=True),
        *(one.SerializeToString(deterministic=True) for one in entries),
    ]
    return hashlib.sha256(b"".join(texts)).hexdigest()
