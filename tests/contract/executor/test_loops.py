"""Loops as a client meets them: queue, modes, decisions, verdicts, aborts."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from itertools import accumulate, pairwise

import pytest
from turnwright.executor.v1 import event_pb2
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc
from turnwright.turns.v1 import turn_service_pb2
from turnwright.types.v1 import entry_pb2, model_pb2, settings_pb2

from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from services import SECRET, running, token_for
from sse_server import SseServer, chat
from turnwright_client.client import Client
from turnwright_core.errors import ExistsError, InvalidError, MissingError, PreconditionError, Reason
from turnwright_core.packet_digest import packet_digest
from turnwright_kit.peer import Peer

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

SET = '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set>'
NOTE = '<set path="known://fact">It is so.</set>'
GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'
PROPOSAL = "log://turn_1/set/a.txt"


def summary(loop) -> tuple[int, str, str]:
    return loop.status, loop.reason, loop.summary


async def test_a_run_begins_with_a_prompt_and_its_alias_is_taken(services) -> None:
    # RU002, RU003, RU037
    services.script(DONE)
    loop = await services.until(await services.act("Say done."))
    assert summary(loop) == (200, "update", "Done.")
    run = (await services.client.get_run(services.project, "r")).run
    assert (run.status, run.summary, run.settings.model) == (200, "Done.", "m")
    started = await services.entry("run://r")
    assert (started.body, started.scheme) == ("Say done.", "run")


async def test_commands_are_recorded_before_any_is_dispatched_and_in_their_order(services) -> None:
    # RU007, RU128, RU132, RU149
    services.script(f'<get path="a.txt"/>{NOTE}<sh>cat a.txt</sh>{GO_ON}', DONE)
    await services.until(await services.act())
    added = [
        (event.message_added.entry.path, event.message_added.entry.state)
        for event in services.events
        if event.message_added.entry.path.startswith("log://turn_1/")
    ]
    recorded = [path for path, state in added if state == entry_pb2.STATE_RECORDED]
    assert recorded == [
        "log://turn_1/get/a.txt",
        "log://turn_1/set/known%3A/fact",
        "log://turn_1/sh/cat_a.txt",
        "log://turn_1/update/4",
    ]
    first_settled = next(
        index
        for index, event in enumerate(services.events)
        if event.message_updated.entry.path.startswith("log://turn_1/")
    )
    last_recorded = max(
        index for index, event in enumerate(services.events) if event.message_added.entry.path in recorded
    )
    assert last_recorded < first_settled


async def test_a_proposal_waits_and_its_acceptance_goes_on(services) -> None:
    # RU009, RU138, RU250, RU251, RU255
    services.script(f"{SET}{GO_ON}", DONE)
    queued = await services.act(yolo=False)
    waiting = await services.until(queued, 202)
    assert waiting.status == 202
    assert (services.files / "a.txt").read_text() == "old\n"
    [proposal] = services.view().proposals.values()
    assert (proposal.path, proposal.tool) == (PROPOSAL, "set")
    assert "-old\n+new" in proposal.files.changes[0].patch

    answer = await services.client.resolve(services.project, "r", PROPOSAL, accept=True)

    assert answer.run.status in (102, 202)
    loop = await services.until(queued)
    assert summary(loop) == (200, "update", "Done.")
    assert (services.files / "a.txt").read_text() == "new\n"
    with pytest.raises(PreconditionError) as twice:
        await services.client.resolve(services.project, "r", PROPOSAL, accept=True)
    assert twice.value.reason is Reason.NOT_PROPOSED


async def test_a_rejection_without_a_comment_ends_the_loop_and_leaves_the_run_completed(services) -> None:
    # RU249; C20, C27
    services.script(f"{SET}<sh>touch ran</sh>{DONE}")
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    await services.client.resolve(services.project, "r", PROPOSAL, accept=False)
    loop = await services.until(queued)
    run = (await services.client.get_run(services.project, "r")).run
    assert (loop.status, loop.reason, run.status) == (499, "rejected", 200)
    assert await services.status(PROPOSAL) == 403
    assert await services.status("log://turn_1/sh/touch_ran") == 499
    assert not (services.files / "ran").exists()


async def test_a_rejection_with_a_comment_gives_the_model_another_turn(services) -> None:
    # C20
    services.script(f"{SET}{DONE}", '<update status="422">Then not.</update>')
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    await services.client.resolve(services.project, "r", PROPOSAL, accept=False, comment="Not that file.")
    loop = await services.until(queued)
    assert summary(loop) == (422, "update", "Then not.")
    assert "Not that file." in (await services.entry(PROPOSAL)).body


async def test_ask_refuses_changes_and_the_shell_but_lets_the_model_note(services) -> None:
    # RU008, RU158, RU159; C2
    services.script(f"{NOTE}{SET}", f"<sh>touch ran</sh>{GO_ON}", DONE)
    loop = await services.until(await services.ask())
    assert loop.status == 200
    assert await services.status("known://fact") == 200
    assert (await services.entry(PROPOSAL)).outcome == "permission:403"
    assert (await services.entry("log://turn_2/sh/touch_ran")).outcome == "permission:403"
    assert (services.files / "a.txt").read_text() == "old\n"
    tools = json.loads((await services.entry("instructions://system")).attributes_json)["tools"]
    assert "sh" not in tools
    assert "get" in tools


async def test_env_is_refused_under_yolo(services) -> None:
    # C30
    services.script(f"<env>ls</env>{DONE}", DONE)
    loop = await services.until(await services.act())
    assert loop.turns == 2
    assert (await services.entry("log://turn_1/env/ls")).outcome == "permission:403"


async def test_loops_of_a_run_are_worked_on_one_after_another(services) -> None:
    # RU006, RU109, RU110
    services.script(f"<sh>sleep 0.3; echo $$ >> order</sh>{GO_ON}", DONE)
    queued = [await services.act(f"Task {number}.") for number in range(3)]
    loops = [await services.until(one) for one in queued]
    assert [loop.sequence for loop in loops] == [1, 2, 3]
    assert [loop.first_turn for loop in loops] == [1, 3, 5]
    assert len((services.files / "order").read_text().split()) == 3
    assert (await services.entry("prompt://3")).body == "Task 1."


async def test_an_abort_ends_the_active_loop_and_the_next_one_starts(services) -> None:
    # RU004, RU111; C36
    services.script(f"<sh>echo begun; sleep 60</sh>{GO_ON}", DONE)
    first = await services.act()
    await under_way(services, first)
    services.script(DONE)
    second = await services.act()
    await services.client.abort(services.project, "r")
    ended = await services.until(first)
    assert (ended.status, ended.reason) == (499, "aborted")
    assert (await services.until(second)).status == 200
    entries = services.view().entries
    settled = {path.split("://")[0]: entry for path, entry in entries.items() if "turn_1/sh" in path or "sh://" in path}
    assert {scheme: (entry.state, entry.outcome) for scheme, entry in settled.items()} == {
        "log": (entry_pb2.STATE_FAILED, "stopped:499"),
        "sh": (entry_pb2.STATE_FAILED, "stopped:499"),
    }


async def under_way(services, queued) -> None:
    """Until a command is being carried out."""
    async with contextlib.aclosing(services.client.watch(queued.project, queued.run, queued.cursor)) as events:
        async for event in events:
            if event.run_progress.phase == event_pb2.RunProgress.PHASE_PROCESSING:
                return


async def test_an_abort_while_a_proposal_waits_settles_it(services) -> None:
    # RU039
    services.script(f"{SET}{DONE}")
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    await services.client.abort(services.project, "r")
    loop = await services.until(queued)
    assert (loop.status, await services.status(PROPOSAL)) == (499, 499)
    await services.client.abort(services.project, "r")


async def test_a_terminal_update_after_a_failure_is_refuted(services) -> None:
    # RU133, RU140, RU278; C26
    services.script(f'<get path="nothing.txt"/>{NOTE}{DONE}', DONE)
    loop = await services.until(await services.act())
    assert (loop.status, loop.turns) == (200, 2)
    assert (await services.entry("log://turn_1/get/nothing.txt")).outcome == "not_found:404"
    assert (await services.entry("log://turn_1/update/3")).outcome == "conflict:409"
    with pytest.raises(MissingError):
        await services.entry("known://fact")


async def test_strikes_abandon_the_loop(services) -> None:
    # RU152, RU281; C6
    failing = [f'<get path="nothing_{number}.txt"/>{GO_ON}' for number in range(4)]
    services.script(*failing)
    loop = await services.until(await services.act())
    assert (loop.status, loop.reason, loop.turns) == (499, "strikes", 3)


async def test_a_cycle_is_silent_and_abandons_the_loop(services) -> None:
    # RU156, RU281
    services.script(*[f'<get path="a.txt"/>{GO_ON}'] * 8)
    loop = await services.until(await services.act())
    assert (loop.status, loop.reason, loop.turns) == (499, "cycles", 5)
    assert not [path for path in services.view().entries if "/error/" in path]


async def test_a_command_over_the_cap_is_dropped_and_the_model_hears_of_it(services) -> None:
    # RU293
    notes = "".join(f'<set path="known://n{number}">{number}</set>' for number in range(105))
    services.script(f"{notes}{DONE}", DONE)
    await services.until(await services.act())
    errors = [entry for path, entry in services.view().entries.items() if path.startswith("log://turn_1/error/")]
    assert len(errors) == 1
    assert errors[0].state == entry_pb2.STATE_FAILED


async def test_a_command_that_is_too_large_is_refused_and_nothing_raises(services) -> None:
    services.script(f'<set path="big.txt"><<NEW\n{"x" * 600_000}\nNEW</set>{GO_ON}', DONE)
    loop = await services.until(await services.act())
    assert (loop.status, loop.reason.partition(":")[0]) == (422, "change_failed")
    assert (await services.entry("log://turn_1/set/big.txt")).outcome == "too_large:413"
    assert not (services.files / "big.txt").exists()


async def test_a_known_entry_of_the_model_may_not_be_written_into_a_foreign_scheme(services) -> None:
    # RU034, RU036, RU074
    services.script(f'<set path="prompt://9">Mine.</set>{GO_ON}', DONE)
    loop = await services.until(await services.act())
    assert loop.turns == 2
    record = next(entry for path, entry in services.view().entries.items() if path.startswith("log://turn_1/set/"))
    assert record.outcome == "permission:403"


async def test_the_same_request_is_one_loop(services) -> None:
    # RC10 in part: the durable half
    services.script(DONE)
    wanted = settings_pb2.LoopSettings(model="m", yolo=True)
    first = await services.client.act(services.project, "Once.", run="r", settings=wanted, request_id="q1")
    again = await services.client.act(services.project, "Once.", run="r", settings=wanted, request_id="q1")
    assert (first.sequence, again.sequence) == (1, 1)
    with pytest.raises(ExistsError) as other:
        await services.client.act(services.project, "Another.", run="r", settings=wanted, request_id="q1")
    assert other.value.reason is Reason.REQUEST_ID_REUSED


async def test_what_is_wrong_with_a_task_is_said(services) -> None:
    # RU100, RU233
    with pytest.raises(InvalidError) as nameless:
        await services.act(model="")
    assert (nameless.value.reason, nameless.value.metadata["available"]) == (Reason.MODEL_REQUIRED, "m")
    with pytest.raises(MissingError) as unknown:
        await services.act(model="other")
    assert (unknown.value.reason, "m" in unknown.value.message) == (Reason.MODEL_NOT_FOUND, True)
    with pytest.raises(InvalidError) as empty:
        await services.act("  ")
    assert empty.value.metadata["field"] == "prompt"
    with pytest.raises(InvalidError) as long:
        await services.act("x" * (1024 * 1024 + 1))
    assert long.value.reason is Reason.LIMIT_EXCEEDED
    with pytest.raises(MissingError):
        await services.client.get_run(services.project, "r")
    for root in ("/nowhere/at/all", "relative", ""):
        with pytest.raises(PreconditionError, match=f"'{root}' is not a directory .* by its absolute path"):
            await services.client.init_project(root)


async def test_many_runs_are_worked_on_at_the_same_time(services) -> None:
    # RU005
    services.script(f"<sh>sleep 0.2</sh>{GO_ON}", DONE)
    queued = [await services.act(run=f"r{number}") for number in range(8)]
    loops = await asyncio.gather(*(services.until(one) for one in queued))
    assert [loop.status for loop in loops] == [200] * 8


async def test_a_model_that_is_gone_when_the_decision_comes_fails_the_loop_and_the_run_goes_on_with_another(
    own_services,
) -> None:
    # OM11
    own_services.script(f"{SET}{DONE}")
    own_services.script(DONE, name="n")
    queued = await own_services.act(yolo=False)
    await own_services.until(queued, 202)
    peer = Peer("store", own_services.addresses["store"], SECRET, 5.0)
    models = model_service_pb2_grpc.ModelServiceStub(peer.channel)
    await peer.call(models.DeleteModel, model_service_pb2.DeleteModelRequest(alias="m"))
    other = model_pb2.Model(alias="n", vendor_model="scripted/n")
    await peer.call(models.SetModel, model_service_pb2.SetModelRequest(model=other))
    await peer.close()

    await own_services.client.resolve(own_services.project, "r", PROPOSAL, accept=True)

    loop = await own_services.until(queued)
    assert (loop.status, loop.reason.partition(":")[0]) == (500, "model_not_found")
    assert (await own_services.until(await own_services.act(model="n"))).status == 200


async def test_a_reply_that_was_cut_off_inside_a_command_does_not_run_it(tmp_path, monkeypatch) -> None:
    cut = chat(f'{NOTE}<set path="a.txt"><<REPLACE\nhalf', finish="length")
    async with SseServer([cut, chat(DONE)]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_tiny", "openai/tiny")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            (services.files / "a.txt").write_text("old\n")
            loop = await services.until(await services.act(model="tiny"))
            error = await services.entry("log://turn_1/error/cut_reply_1")
            # It says that it is done, but what was cut off was not written again (C67).
            assert (loop.status, loop.turns, error.outcome) == (422, 2, "cut:400")
            assert await services.status("known://fact") == 200
            assert (services.files / "a.txt").read_text() == "old\n"


async def test_what_a_command_does_to_files_stands_in_the_next_turn(services) -> None:
    # RU204
    services.script(
        f'<get path="a.txt"/><sh>echo fresh > new.txt; rm a.txt</sh>{GO_ON}',
        f'<get path="new.txt"/>{GO_ON}',
        f'<get path="a.txt"/>{GO_ON}',
        DONE,
    )
    loop = await services.until(await services.act())
    assert (loop.status, loop.turns) == (200, 4)
    assert (await services.entry("new.txt")).body == "fresh\n"
    assert (await services.entry("log://turn_3/get/a.txt")).outcome == "not_found:404"
    assert (await services.entry("log://turn_0/repo/manifest")).body == "* a.txt - 2 tokens"


async def test_a_run_without_the_projects_files_has_no_manifest(services) -> None:
    services.script(DONE)
    await services.until(await services.act(no_repo=True))
    with pytest.raises(MissingError):
        await services.entry("log://turn_0/repo/manifest")
    with pytest.raises(MissingError):
        await services.entry("a.txt")


async def test_a_packet_that_cannot_fit_ends_the_loop_with_413_and_says_what_was_tried(services) -> None:
    # RU217; C6, C27
    services.script(DONE)
    limits = settings_pb2.RunSettings(model="m", context_limit=1024)
    wanted = settings_pb2.LoopSettings(model="m", yolo=True)
    queued = await services.client.act(services.project, "x" * 5000, run="r", settings=wanted, run_settings=limits)
    loop = await services.until(queued)
    run = (await services.client.get_run(services.project, "r")).run
    assert (loop.status, run.status) == (413, 500)
    assert "921 are allowed; the instructions alone take" in loop.reason
    assert "choose a model with a larger context window" in loop.reason
    errors = [entry for path, entry in services.view().entries.items() if path.startswith("log://turn_1/error/")]
    assert {entry.status for entry in errors} == {413}
    assert any("921" in entry.body for entry in errors)


async def test_what_the_model_was_sent_is_kept_byte_for_byte(services) -> None:
    # RU197, C22
    services.script(f"{NOTE}{GO_ON}", f"<think>é</think>{GO_ON}", DONE)
    await services.until(await services.act())
    turns = (await services.client.get_run(services.project, "r", turns_max=3)).turns
    peer = services.client._peer
    for turn in turns:
        read = turn_service_pb2.ReadPacketRequest(project=services.project, run="r", turn=turn.number)
        async with peer.stream(services.client._turns.ReadPacket, read, 5.0) as answer:
            parts = [part async for part in answer]
        packet = hashlib.sha256()
        for index, role in enumerate(("system", "user")):
            text = "".join(part.text for part in parts if part.index == index)
            assert text == (await services.entry(f"{role}://{turn.number}")).body
            ends = [*accumulate(chars for part in parts if part.index == index for chars in part.piece_chars)]
            pieces = (text[begin:end] for begin, end in pairwise([0, *ends]))
            digest = hashlib.sha256(b"".join(hashlib.sha256(piece.encode()).digest() for piece in pieces))
            packet.update(f"{role} {digest.hexdigest()}\n".encode())
        assert packet.hexdigest() == turn.result.packet_digest
    assert len(turns) == 3


async def test_a_client_draws_a_timeline_of_turns_and_reads_what_the_model_was_sent(services) -> None:
    # RU197: a token of a client is shown no more by it than by the entries of the packet
    services.script(f"{NOTE}{GO_ON}", DONE)
    await services.until(await services.act())
    async with Client.connect(services.client.address, token_for("ann")) as client:
        turns = [turn async for turn in client.list_turns(services.project, "r")]
        assert turns == list((await client.get_run(services.project, "r", turns_max=3)).turns)
        assert [turn.number async for turn in client.list_turns(services.project, "r", [1, 2])] == [1, 2]
        for turn in turns:
            packet = await client.read_packet(services.project, "r", turn.number)
            assert packet_digest(packet) == turn.result.packet_digest
            for role, pieces in packet:
                assert (
                    "".join(pieces) == (await client.get_entry(services.project, "r", f"{role}://{turn.number}")).body
                )
        assert await client.read_packet(services.project, "r") == await client.read_packet(services.project, "r", 2)
        with pytest.raises(MissingError) as missing:
            await client.read_packet(services.project, "r", 9)
        assert missing.value.reason is Reason.TURN_NOT_FOUND
