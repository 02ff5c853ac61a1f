"""Validation and decoding of requests."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from msgspec.structs import replace
from turnwright.assembler.v1 import assembler_service_pb2, budget_pb2

from turnwright_assembler.app.reading import PacketRequest
from turnwright_assembler.ports import ViewPart, ViewPatch
from turnwright_core.chat.prompt_edits import PromptEdit, check_edits, check_kept_images
from turnwright_core.checks import check_chars, check_count, invalid
from turnwright_core.limits import CALIBRATION_MAX, NAME_CHARS_MAX, PROMPT_EDITS_MAX, VIEW_CHANGES_MAX
from turnwright_core.owner_calls import AssembleCall, ViewChange
from turnwright_core.wire.entries import cursor_from_pb
from turnwright_core.wire.owner_calls import view_change_from_pb
from turnwright_core.wire.prompt_edits import edits_from_pb
from turnwright_core.wire.runs import turn_request_from_pb


def packet_request_from(
    request: AssembleCall | assembler_service_pb2.AssembleRequest | budget_pb2.CheckBudgetRequest,
) -> PacketRequest:
    """Decode a request. Raises InvalidError that names the field."""
    call = request if isinstance(request, AssembleCall) else _decoded(request)
    for field in ("project", "run"):
        _check_name(field, getattr(call, field))
    for field in ("turn", "loop", "context_length"):
        if getattr(call, field) < 1:
            raise invalid(field, f"`{field}` must be at least 1.")
    if not isfinite(call.calibration) or not 0 <= call.calibration <= CALIBRATION_MAX:
        raise invalid("calibration", f"`calibration` must be from 0 to {CALIBRATION_MAX:g}.")
    return PacketRequest(
        project=call.project,
        run=call.run,
        turn=call.turn,
        loop=call.loop,
        context_length=call.context_length,
        at_least=call.at_least,
        calibration=call.calibration,
        base_digest=call.base_digest,
        view_changes=tuple(map(_view_patch, call.view_changes)),
        transcript=call.transcript,
        output_reserve=call.output_reserve,
        edits=_checked_edits(call.edits),
        request=call.request,
        prefill=call.prefill,
        compaction=call.compaction,
    )


def _checked_edits(edits: Sequence[PromptEdit]) -> tuple[PromptEdit, ...]:
    check_edits(edits)
    check_kept_images(edits)
    return tuple(edits)


def _decoded(request: assembler_service_pb2.AssembleRequest | budget_pb2.CheckBudgetRequest) -> AssembleCall:
    check_count("edits", len(request.edits), PROMPT_EDITS_MAX)
    call = AssembleCall(
        request.project,
        request.run,
        request.turn,
        request.loop,
        request.context_length,
        cursor_from_pb(request.at_least) if request.HasField("at_least") else None,
        request.calibration,
        transcript=request.transcript,
        output_reserve=request.output_reserve,
        edits=edits_from_pb(request.edits),
    )
    if not isinstance(request, assembler_service_pb2.AssembleRequest):
        return call
    check_count("view_changes", len(request.view_changes), VIEW_CHANGES_MAX)
    return replace(
        call,
        base_digest=request.base_digest,
        view_changes=tuple(map(view_change_from_pb, request.view_changes)),
        request=turn_request_from_pb(request.request) if request.HasField("request") else None,
        prefill=request.prefill,
        compaction=request.compaction,
    )


def _view_patch(change: ViewChange) -> ViewPatch:
    part = ViewPart(entries=tuple(change.entries), removed=tuple(change.removed_paths), cursor=change.after)
    return ViewPatch(change.before, part, change.schemes_version, change.messages)


def _check_name(field: str, value: str) -> None:
    if not value:
        raise invalid(field, f"`{field}` is missing.")
    check_chars(field, value, NAME_CHARS_MAX)
