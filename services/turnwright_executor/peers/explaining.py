"""ExplainPacket: what is known of a turn, put together with what the assembler makes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace
from turnwright.assembler.v1 import assembler_service_pb2, assembler_service_pb2_grpc
from turnwright.executor.v1 import explain_pb2
from turnwright.store.v1 import store_service_pb2_grpc
from turnwright.turns.v1 import turn_service_pb2, turn_service_pb2_grpc
from turnwright.types.v1 import cursor_pb2, explanation_pb2, settings_pb2
from turnwright_values.types import Assembly, Cursor, Loop, LoopSettings, Mode, Run, Turn

from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.checks import check_count, invalid
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT, EXPLAINED_PIECES_DEFAULT, EXPLAINED_PIECES_MAX, PAGE_SIZE_MAX
from turnwright_core.runs import COMPLETED, QUEUED
from turnwright_core.wire.entries import cursor_to_pb, write_to_pb
from turnwright_core.wire.owner_calls import assemble_to_pb
from turnwright_core.wire.runs import loop_from_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.tokens import rate_after
from turnwright_executor.peers.assembler import assemble_call
from turnwright_executor.peers.packets import PacketNote, packet_note
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.tools.ports import Workspace
from turnwright_executor.turn.beginning import first_turn
from turnwright_executor.turn.images import edits_of
from turnwright_executor.turn.loop_scope import Services
from turnwright_executor.turn.project_files import FileSync
from turnwright_kit.peer import Peer

RootOf = Callable[[str], Awaitable[str]]
FilesOf = Callable[[str, str], Awaitable[tuple[Workspace, FileSync]]]


class RecordedPackets:
    """Explains the packets of turns that were."""

    def __init__(self, store: Peer, assembler: Peer, ledger: Ledger) -> None:
        self._ledger = ledger
        self._store = store
        self._rows = store_service_pb2_grpc.StoreServiceStub(store.channel)
        self._turn_rows = turn_service_pb2_grpc.TurnServiceStub(store.channel)
        self._assembler = assembler
        self._packets = assembler_service_pb2_grpc.AssemblerServiceStub(assembler.channel)

    async def explain(self, request: explain_pb2.ExplainPacketRequest) -> explain_pb2.ExplainPacketResponse:
        """The packet of a turn. Raises TURN_NOT_FOUND, TurnwrightError."""
        pieces_max = _pieces_max(request)
        address = RunAddress(request.project, request.run)
        run = await self._ledger.get_run(address)
        turn = await self._turn(address, request.turn or run.turn)
        note, result = await self._note(address, turn.number) or PacketNote(), turn.result
        is_inherited = run.forked_from is not None and turn.number <= run.forked_from.turn
        call = _call(
            address,
            turn,
            note.calibration or (result.calibration if result else 0.0),
            note.edits or (result.edits if result else ()),
        )
        explain_request = assembler_service_pb2.ExplainRequest(
            assemble=call,
            at=_moment(turn, note, is_inherited=is_inherited),
            sent=True,
            before_turn=turn.number - 1,
            pieces_max=pieces_max,
        )
        explanation = await self._explained(explain_request, turn)
        explanation.stored_digest = explanation.stored_digest or (result.packet_digest if result else "")
        explanation.stored_render_version = note.render_version
        then, now = explanation.stored_render_version, explanation.render_version
        if explanation.digest != explanation.stored_digest and then and then != now:
            explanation.gaps.append(f"It was assembled by {then}; now {now} assembles.")
        return explain_pb2.ExplainPacketResponse(explanation=explanation)

    async def _explained(
        self, request: assembler_service_pb2.ExplainRequest, turn: Turn
    ) -> explanation_pb2.PacketExplanation:
        explanation = (await self._assembler.call(self._packets.Explain, request)).explanation
        explanation.turn, explanation.loop, explanation.model = turn.number, turn.loop, turn.request.model
        explanation.assembly = settings_pb2.Assembly.Value(
            f"ASSEMBLY_{(turn.request.assembly or Assembly.PACKET).name}"
        )
        explanation.context_length, explanation.calibration = turn.request.context_length, request.assemble.calibration
        explanation.window_reason = await self._window_reason(turn)
        return explanation

    async def _window_reason(self, turn: Turn) -> str:
        """Why the window of a turn is smaller than that of its model, if a refusal is the reason."""
        model = await self._ledger.get_model(turn.request.model)
        window = model.reported_window if model else None
        if window is None or window.context_length != turn.request.context_length:
            return ""
        known = f"{window.known_length:,}" if window.known_length else f"{CONTEXT_LENGTH_DEFAULT:,} (assumed)"
        where = f"turn {window.turn} of {window.run}" if window.turn else "an earlier prompt"
        return f"The vendor named a window of {window.context_length:,} tokens when it refused {where}, not {known}."

    async def _turn(self, address: RunAddress, number: int) -> Turn:
        found = await self._ledger.get_turns(address, [number]) if number else []
        if not found:
            message = f"{address.run} has no turn {number}, or the run that had it was removed."
            raise fault(Reason.TURN_NOT_FOUND, message, run=address.run, turn=number)
        return found[0]

    async def _calibration(self, address: RunAddress, latest: Turn) -> float:
        """Of the latest ended turn of a loop, which is the latest turn or the one before; 0: unknown."""
        if latest.result is None and latest.number > 1:
            before = await self._ledger.get_turns(address, [latest.number - 1])
            latest = next((turn for turn in before if turn.loop == latest.loop), latest)
        return rate_after(latest.result).calibration if latest.result else 0.0

    async def _note(self, address: RunAddress, turn: int) -> PacketNote | None:
        """The note of a stored packet; None if there is none. The packet itself is not read to its end."""
        request = turn_service_pb2.ReadPacketRequest(project=address.project, run=address.run, turn=turn)
        try:
            async with self._store.stream(self._turn_rows.ReadPacket, request, self._store.timeout_s) as parts:
                async for part in parts:
                    return packet_note(part.note)
        except TurnwrightError as error:
            if error.reason is not Reason.TURN_NOT_FOUND:
                raise
        return None


class PacketExplanations(RecordedPackets):
    """Explains the packet of the next turn, too."""

    def __init__(self, store: Peer, assembler: Peer, services: Services, root_of: RootOf, files_of: FilesOf) -> None:
        """`root_of` is the directory of a project; `files_of` finds its files, or raises WORKSPACE_UNAVAILABLE."""
        super().__init__(store, assembler, services.ledger)
        self._services = services
        self._root_of = root_of
        self._files_of = files_of

    async def explain(self, request: explain_pb2.ExplainPacketRequest) -> explain_pb2.ExplainPacketResponse:
        """The packet of a turn, or with `next` that of the next one. Raises TurnwrightError."""
        if request.next and request.turn:
            raise invalid("turn", "next is the turn after the latest one: leave out turn.")
        return await (self._preview(request) if request.next else super().explain(request))

    async def _preview(self, request: explain_pb2.ExplainPacketRequest) -> explain_pb2.ExplainPacketResponse:
        """The packet of the next turn, if it began now. Raises TurnwrightError."""
        pieces_max = _pieces_max(request)
        address = RunAddress(request.project, request.run)
        run = await self._ledger.get_run(address)
        if not run.turn:
            return await self._first(address, run, pieces_max)
        latest = await self._turn(address, run.turn)
        is_sent = latest.result is not None or await self._note(address, latest.number) is not None
        number = latest.number + 1 if is_sent else latest.number
        calibration = await self._calibration(address, latest)
        # What plugins will edit is known only when they are called, and they may do more than edit.
        edits = [edit for edit in latest.result.edits if not edit.plugin] if latest.result else ()
        call = _call(address, replace(latest, number=number), calibration, edits)
        explain_request = assembler_service_pb2.ExplainRequest(
            assemble=call, before_turn=number - 1, pieces_max=pieces_max
        )
        explanation = await self._explained(explain_request, latest)
        explanation.turn, explanation.preview = number, True
        return explain_pb2.ExplainPacketResponse(explanation=explanation)

    async def _first(self, address: RunAddress, run: Run, pieces_max: int) -> explain_pb2.ExplainPacketResponse:
        """The packet of a run's first turn."""
        loop, gaps = await self._waiting_loop(address, run), []
        if not loop.prompt:
            gaps.append("No task waits: the prompt of the next one is not in it.")
        try:
            place = await self._files_of(address.project, await self._root_of(address.project))
        except TurnwrightError as error:
            if error.reason is not Reason.WORKSPACE_UNAVAILABLE:
                raise
            place = None
            gaps.append(f"Files and instructions of the project are not in it: {error.message}")
        alias = loop.settings.model or run.settings.model
        model = await self._ledger.get_model(alias)
        if model is None:
            message = f"The model {alias} is gone: add it again, or choose another one for the run."
            raise fault(Reason.MODEL_NOT_FOUND, message, model=alias)
        turn, writes = await first_turn(self._services, address, run, loop, model, place)
        request = assembler_service_pb2.ExplainRequest(
            assemble=_call(address, turn, 0.0, edits_of(loop)),
            pieces_max=pieces_max,
            writes=map(write_to_pb, writes),
        )
        explanation = await self._explained(request, turn)
        explanation.preview = True
        explanation.gaps.extend(gaps)
        return explain_pb2.ExplainPacketResponse(explanation=explanation)

    async def _waiting_loop(self, address: RunAddress, run: Run) -> Loop:
        """The loop of a run that begins next; one without a prompt if none waits."""
        request = turn_service_pb2.ListLoopsRequest(project=address.project, run=address.run, page_size=PAGE_SIZE_MAX)
        answer = await self._store.call(self._turn_rows.ListLoops, request)
        waiting = [loop for loop in answer.loops if loop.status < COMPLETED]
        if waiting:
            return loop_from_pb(min(waiting, key=lambda loop: loop.sequence))
        return Loop(len(answer.loops) + 1, LoopSettings(Mode.ACT, model=run.settings.model), "", QUEUED)


def _call(
    address: RunAddress, turn: Turn, calibration: float, edits: Sequence[PromptEdit]
) -> assembler_service_pb2.AssembleRequest:
    # What continues a message of the assistant was accepted, whatever is known of the model now.
    return assemble_to_pb(assemble_call(address, turn, calibration, edits, prefill=True))


def _pieces_max(request: Any) -> int:
    check_count("pieces_max", request.pieces_max, EXPLAINED_PIECES_MAX)
    return request.pieces_max if request.HasField("pieces_max") else EXPLAINED_PIECES_DEFAULT


def _moment(turn: Turn, note: PacketNote, *, is_inherited: bool) -> cursor_pb2.Moment | None:
    """The moment that a packet shows; None: not recorded."""
    if turn.result and turn.result.cursor:
        # By the turn, as a restored backup, or a fork, does not take the cursor of what it came from.
        return cursor_pb2.Moment(packet_of_turn=turn.number)
    if is_inherited or not note.cursor[0]:
        return None
    return cursor_pb2.Moment(cursor=cursor_to_pb(Cursor(*note.cursor)))
