"""Stored turns assembled again: equal bytes whatever happened in the run, and reasons that say what did."""

import itertools
import json

import pytest
import pytest_asyncio
from turnwright.types.v1 import explanation_pb2 as pb
from turnwright.types.v1 import settings_pb2

from contract.executor.test_pipeline import DONE
from contract.executor.test_transcripts import PACKET, TRANSCRIPT, calling
from services import SECRET, running
from sse_server import SseServer, chat
from turnwright_assembler.config import AssemblerSettings
from turnwright_assembler.wiring import build as build_assembler
from turnwright_core.chat.prompt_edits import append, append_to, insert_before
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.prompt_edits import edit_to_pb

pytestmark = pytest.mark.asyncio

MORE = '<update status="102">More.</update>'
WINDOW = 18_432
PLUGIN = """
    from turnwright_assembler.plugins import Item
    VERSION = "1.2"
    def register(registry):
        registry.section("tides", lambda context: [Item("tides://now", "high")], priority=60)
        registry.filter("assembly.user", lambda pieces, context: (*pieces, "low\\n"), priority=160)
"""


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def services(request, tmp_path, monkeypatch):
    """The services on each database."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    on = {"db": request.getfixturevalue("postgres_url")} if request.param == "postgres" else {}
    async with running(tmp_path, store_settings=on) as made:
        for name in "abc":
            (made.files / f"{name}.py").write_text("".join(f"{name}_{line} = {line * 7919}\n" for line in range(1200)))
        yield made


async def with_sections(services, sections: str) -> None:
    """Start the assembler again with these plugins."""
    at = services.addresses["store"]
    settings = {"home": services.root / "home", "token": SECRET, "log_level": "error", "store": at}
    services.builds["assembler"] = lambda: build_assembler(AssemblerSettings(**settings, sections=sections), SECRET)
    await services.restart("assembler")


async def explained(services, turns: int, run: str = "r") -> list[pb.PacketExplanation]:
    return [await services.client.explain_packet(services.project, run, turn) for turn in range(1, turns + 1)]


def equal(told: list[pb.PacketExplanation]) -> list[bool]:
    return [bool(one.digest) and one.digest == one.stored_digest for one in told]


async def act(services, *replies: str, **more):
    services.script(*replies)
    limits = settings_pb2.RunSettings(model="m", context_limit=WINDOW)
    wanted = settings_pb2.LoopSettings(model="m", yolo=True, **more)
    queued = await services.client.act(services.project, "Work.", run="r", settings=wanted, run_settings=limits)
    return await services.until(queued)


def plan(text: str) -> str:
    return f'<set_plan plan_id="main">{text}</set_plan>'


async def busy_run(services) -> int:
    """A run with plans, events, demotions by both steps, an edited file, and a second loop; its number of turns."""
    archive = "".join(f'<set path="{name}.py" visibility="archived"/>' for name in "abc")
    replies = (
        f'<get path="a.py"/>{plan("1. read")}{MORE}',
        f'<get path="b.py"/><update_plan plan_id="main">a is read</update_plan>{MORE}',
        f'<get path="c.py"/><set path="known://k">a fact</set>{MORE}',
        f"<sh>echo more >> a.py; echo 1 2 3</sh>{MORE}",
        f'<get path="a.py"/><get path="b.py"/><unknown>why</unknown>{MORE}',
        f'<set path="unknown://why">why?</set>{plan("2. write")}{archive}{MORE}',
        DONE,
    )
    assert (await act(services, *replies)).status == 200
    await services.client.inject_message(services.project, "r", "Mind the gap.")
    assert (await act(services, f'<get path="c.py"/>{MORE}', DONE)).status == 200
    return (await services.client.get_run(services.project, "r")).run.turn


async def test_every_turn_of_a_busy_run_is_assembled_to_the_same_bytes(services):
    turns = await busy_run(services)
    told = await explained(services, turns)
    assert equal(told) == [True] * turns
    assert [list(one.gaps) for one in told] == [[]] * turns
    kinds = {total.kind for one in told for total in one.kinds}
    assert kinds >= {
        pb.PIECE_KIND_PLAN, pb.PIECE_KIND_FILE, pb.PIECE_KIND_RECORD, pb.PIECE_KIND_UNKNOWN, pb.PIECE_KIND_PROMPT,
    }  # fmt: skip


async def test_what_was_demoted_says_by_which_step_in_which_turn(services):
    turns = await busy_run(services)
    told = await explained(services, turns)
    reduced = {
        (one.turn, piece.path, piece.reduced_by, piece.reduced_in_turn)
        for one in told
        for piece in one.pieces
        if piece.reduced_by
    }
    assert reduced
    saved = [piece.whole_tokens - piece.tokens for one in told for piece in one.pieces if piece.reduced_by]
    assert (min(saved) >= 0, max(saved) > 500) == (True, True)
    errors = [entry async for entry in services.client.list_entries(services.project, "r", "log://*/error/budget*")]
    listed = {
        (path[2:], json.loads(entry.attributes_json)["step"], int(entry.path.split("turn_")[1].split("/")[0]))
        for entry in errors
        for path in entry.body.split("\n")
        if path.startswith("* ")
    }
    steps = {
        pb.PACKET_STEP_KIND_PREVIOUS_TURN: 2, pb.PACKET_STEP_KIND_PROMPT: 3,
        pb.PACKET_STEP_KIND_TURN: 5, pb.PACKET_STEP_KIND_EARLIER_TURNS: 6,
    }  # fmt: skip
    assert {(path, steps[step], turn) for _, path, step, turn in reduced} <= listed
    by_ladder = {step.name for one in told for step in one.steps}
    assert by_ladder | {step for _, _, step, _ in reduced} >= {pb.PACKET_STEP_KIND_TURN}


async def test_a_fork_explains_the_turns_that_it_inherited_as_long_as_their_run_is_there(services):
    turns = await busy_run(services)
    await services.client.fork_run(services.project, "r", new_run="f", turn=6)
    services.script(f'<get path="b.py"/>{MORE}', DONE)
    queued = await services.client.act(
        services.project, "Go on.", run="f", settings=settings_pb2.LoopSettings(model="m", yolo=True)
    )
    await services.until(queued)
    own, forked = await explained(services, 6), await explained(services, 8, "f")
    assert equal(forked) == [True] * 8
    assert [one.digest for one in forked[:6]] == [one.digest for one in own]
    assert (forked[6].prefix.before_turn, turns > 6) == (6, True)
    await services.client.delete_run(services.project, "r")
    with pytest.raises(TurnwrightError) as caught:
        await services.client.explain_packet(services.project, "f", 3)
    assert caught.value.reason is Reason.TURN_NOT_FOUND
    later = await services.client.explain_packet(services.project, "f", 7)
    assert (equal([later]), later.HasField("prefix")) == ([True], False)
    assert list(later.gaps) == ["The packet of turn 6 is not stored, so prefixes are not compared."]


async def test_a_turn_that_did_not_fit_is_explained_from_its_moment(services):
    (services.files / "AGENTS.md").write_text("x" * 5000)
    services.script(DONE)
    limits = settings_pb2.RunSettings(model="m", context_limit=1024)
    queued = await services.client.act(
        services.project, "Work. " * 4000, run="r", run_settings=limits,
        settings=settings_pb2.LoopSettings(model="m"),
    )  # fmt: skip
    assert (await services.until(queued)).status == 413
    told = await services.client.explain_packet(services.project, "r", 1)
    assert (equal([told]), told.tokens > told.ceiling) == ([True], True)
    assert [step.kind for step in told.steps] == [pb.PACKET_STEP_KIND_OVERFLOW]
    assert "never sent" in told.gaps[0]


async def test_plugins_are_named_and_one_that_is_away_makes_packets_differ_by_name(services, plugin):
    await with_sections(services, plugin("tides", PLUGIN))
    assert (await act(services, f'<get path="a.py"/>{MORE}', DONE)).status == 200
    told = await explained(services, 2)
    assert equal(told) == [True, True]
    pieces = [(piece.section, piece.path) for piece in told[1].pieces if piece.kind == pb.PIECE_KIND_PLUGIN]
    assert {section for section, _ in pieces} == {"tides", "assembly.user"}
    assert {path for _, path in pieces} == {"tides:register"}
    assert any(piece.path == "a.py" and piece.section == "visible" for piece in told[1].pieces)
    await with_sections(services, "none")
    away = await explained(services, 2)
    assert equal(away) == [False, False]
    assert all("tides:register=" in one.gaps[1] for one in away)
    assert [one.bytes for one in away] == [one.bytes for one in told]
    known = {piece.path for piece in away[1].pieces if piece.kind == pb.PIECE_KIND_FILE}
    assert "a.py" in known
    assert pb.PIECE_KIND_UNEXPLAINED in {total.kind for total in away[1].kinds}


async def test_other_settings_of_the_assembler_are_told_from_the_same_packet(services):
    assert (await act(services, f'<get path="a.py"/>{MORE}', DONE)).status == 200
    at = services.addresses["store"]
    settings = {"home": services.root / "home", "token": SECRET, "log_level": "error", "store": at}
    services.builds["assembler"] = lambda: build_assembler(AssemblerSettings(**settings, token_divisor=3), SECRET)
    await services.restart("assembler")
    (told,) = (await explained(services, 2))[1:]
    assert equal([told]) == [False]
    assert told.gaps[0].startswith("Assembled again it is another packet than the one that was sent, first at ")
    assert told.prefix.before_turn == 1


async def transcript_run(
    tmp_path, monkeypatch, turns: int, context_limit: int, *loops: tuple[str, int]
) -> list[pb.PacketExplanation]:
    """A run whose first loop reads files; its turns explained. Each loop has a prompt and an assembly."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
    reads = [calling(("get", {"path": f"f{number}.txt"})) for number in range(turns - 1)]
    async with SseServer([*reads, chat("Read."), chat(DONE)]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            for number in range(turns):
                (services.files / f"f{number}.txt").write_text(f"line \u2028 {number}\n" * 450)
            limits = settings_pb2.RunSettings(model="m", context_limit=context_limit)
            for prompt, assembly in loops:
                settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=assembly)
                queued = await services.client.act(
                    services.project, prompt, run="r", settings=settings, run_settings=limits
                )
                assert (await services.until(queued)).status == 200
            preview = await services.client.preview_packet(services.project, "r")
            assert (preview.turn, preview.assembly) == (turns + len(loops), loops[-1][1])
            return await explained(services, turns + len(loops) - 1)


async def test_transcripts_are_assembled_to_the_same_bytes_and_continue_each_other(tmp_path, monkeypatch):
    told = await transcript_run(tmp_path, monkeypatch, 6, 100_000, ("Read.", TRANSCRIPT), ("And?", PACKET))
    assert equal(told) == [True] * 7
    assert [one.assembly for one in told] == [TRANSCRIPT] * 6 + [PACKET]
    for before, after in itertools.pairwise(told[:6]):
        assert (after.prefix.bytes, after.prefix.kind) == (before.bytes, pb.PIECE_KIND_REPLY)
        assert after.prefix.path == f"assistant://{before.turn}"
    assert {piece.path for piece in told[5].pieces if piece.kind == pb.PIECE_KIND_RESULT} == {
        f"log://turn_{turn}/get/f{turn - 1}.txt" for turn in range(1, 6)
    }


async def test_what_a_compression_changed_is_told_with_its_step_and_breaks_the_prefix_there(tmp_path, monkeypatch):
    told = await transcript_run(tmp_path, monkeypatch, 14, 17_000, ("Read.", TRANSCRIPT))
    assert equal(told) == [True] * 14
    compressed = [one for one in told if one.steps]
    assert compressed
    for one in compressed:
        changed = {path for step in one.steps for path in step.paths}
        assert one.prefix.path in changed
        shortened = {piece.path: piece for piece in one.pieces if piece.form != pb.PIECE_FORM_WHOLE}
        assert shortened.keys() & changed
        steps = {step.kind for step in one.steps}
        assert {shortened[path].reduced_by for path in shortened.keys() & changed} <= steps
        # Later turns still say which stage of which turn it was.
        for later in told[one.turn :]:
            for piece in later.pieces:
                if piece.path in shortened:
                    assert (piece.reduced_by in steps, piece.reduced_in_turn <= later.turn) == (True, True)


@pytest.mark.parametrize("assembly", [PACKET, TRANSCRIPT])
async def test_edits_of_a_prompt_are_pieces_and_stored_ones_give_the_packet_again(tmp_path, monkeypatch, assembly):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
    edits = [
        append("user", "Be brief \u2028 and kind."), insert_before("prompt://1", "user", "Listen."),
        append_to("last-user", "Please."),
    ]  # fmt: skip
    first = calling(("get", {"path": "a.txt"})) if assembly == TRANSCRIPT else chat(f'<get path="a.txt"/>{MORE}')
    async with SseServer([first, chat(DONE)]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            (services.files / "a.txt").write_text("one\n")
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=assembly, edits=map(edit_to_pb, edits))
            queued = await services.client.act(services.project, "Work.", run="r", settings=settings)
            assert (await services.until(queued)).status == 200
            told = await explained(services, 2)
            preview = await services.client.preview_packet(services.project, "r")
    assert equal(told) == [True, True]
    for one in (*told, preview):
        added = [piece.why for piece in one.pieces if piece.kind == pb.PIECE_KIND_EDIT]
        assert all(why.startswith("Added by edits[") for why in added), added
        assert {pb.PIECE_KIND_EDIT, pb.PIECE_KIND_PROMPT} <= {total.kind for total in one.kinds}
        assert sum(piece.bytes for piece in one.pieces) == one.bytes
        assert abs(sum(piece.tokens for piece in one.pieces) - one.tokens) <= 2
