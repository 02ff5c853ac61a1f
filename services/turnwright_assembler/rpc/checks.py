"""Validation of requests."""

from __future__ import annotations

from math import isfinite

from turnwright_values.assembler import AssembleRequest

from turnwright_core.chat.prompt_edits import check_edits, check_kept_images
from turnwright_core.checks import check_chars, check_count, invalid
from turnwright_core.limits import CALIBRATION_MAX, NAME_CHARS_MAX, PROMPT_EDITS_MAX, VIEW_CHANGES_MAX


def check_assemble(call: AssembleRequest) -> None:
    """Raises InvalidError that names the field."""
    for field, name in (("project", call.project), ("run", call.run)):
        if not name:
            raise invalid(field, f"`{field}` is missing.")
        check_chars(field, name, NAME_CHARS_MAX)
    for field, number in (("turn", call.turn), ("loop", call.loop), ("context_length", call.context_length)):
        if number < 1:
            raise invalid(field, f"`{field}` must be at least 1.")
    if not isfinite(call.calibration) or not 0 <= call.calibration <= CALIBRATION_MAX:
        raise invalid("calibration", f"`calibration` must be from 0 to {CALIBRATION_MAX:g}.")
    check_count("view_changes", len(call.view_changes), VIEW_CHANGES_MAX)
    check_count("edits", len(call.edits), PROMPT_EDITS_MAX)
    check_edits(call.edits)
    check_kept_images(call.edits)
