"""What a request must be before any work starts."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from turnwright.assembler.v1 import assembler_service_pb2, budget_pb2
from turnwright.types.v1 import view_pb2

from turnwright_assembler.app.assemble import PacketRequest
from turnwright_assembler.ports import ViewPart, ViewPatch
from turnwright_core.checks import check_chars, check_count, invalid
from turnwright_core.limits import CALIBRATION_MAX, NAME_CHARS_MAX, VIEW_CHANGES_MAX
from turnwright_core.wire.entries import cursor_from_pb, entry_from_pb


def packet_request_from(
    request: assembler_service_pb2.AssembleRequest | budget_pb2.CheckBudgetRequest,
) -> PacketRequest:
    """The request as the use case knows it. Raises InvalidError naming the field."""
    for field in ("project", "run"):
        _check_name(field, getattr(request, field))
    for field in ("turn", "loop", "context_length"):
        if getattr(request, field) < 1:
            raise invalid(field, f"`{field}` must be at least 1.")
    if not isfinite(request.calibration) or not 0 <= request.calibration <= CALIBRATION_MAX:
        raise invalid("calibration", f"`calibration` must be from 0 to {CALIBRATION_MAX:g}.")
    base_digest = ""
    changes: tuple[ViewPatch, ...] = ()
    if isinstance(request, assembler_service_pb2.AssembleRequest):
        base_digest, changes = request.base_digest, _told(request.view_changes)
    return PacketRequest(
        project=request.project,
        run=request.run,
        turn=request.turn,
        loop=request.loop,
        context_length=request.context_length,
        at_least=cursor_from_pb(request.at_least) if request.HasField("at_least") else None,
        calibration=request.calibration,
        base_digest=base_digest,
        view_changes=changes,
    )


def _told(changes: Sequence[view_pb2.ViewChange]) -> tuple[ViewPatch, ...]:
    check_count("view_changes", len(changes), VIEW_CHANGES_MAX)
    return tuple(map(_view_change, changes))


def _view_change(change: view_pb2.ViewChange) -> ViewPatch:
    part = ViewPart(
        entries=tuple(map(entry_from_pb, change.entries)),
        removed=tuple(change.removed_paths),
        cursor=cursor_from_pb(change.after),
    )
    return ViewPatch(cursor_from_pb(change.before), part, change.schemes_version)


def _check_name(field: str, value: str) -> None:
    if not value:
        raise invalid(field, f"`{field}` is missing.")
    check_chars(field, value, NAME_CHARS_MAX)
