"""Turn demotion after DISPATCH: results of a turn are summarized if the next packet would not fit.

The assembler decides, but it is only called if the turn may have added too much: an upper bound for its additions is
counted, and compared with the space left when its packet was built. Its demotions are written with the turn's end.
Source: architecture 2 (CheckBudget); rows RU142, RU143; decisions C4, C16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import floor, isfinite
from typing import Final

from msgspec.structs import replace
from turnwright_values.assembler import CheckBudgetResponse
from turnwright_values.store import EntryWrite
from turnwright_values.types import Model, ReportedWindow, TokenSource, Turn

from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT
from turnwright_core.models import window_of
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.endings import TOO_LONG
from turnwright_executor.domain.footprint import Footprint, chars_of, room_chars
from turnwright_executor.domain.tokens import TokenRate, rate_after, ratio_of
from turnwright_executor.ports.packets import Packet, Packets
from turnwright_executor.turn.model_call import ModelCallRecord
from turnwright_executor.turn.write_buffer import WriteBuffer

SHORTER: Final = 0.75
"""The part of a refused packet that the next one may have, if the vendor says no count that explains the refusal."""

UNFIT_NAMED: Final = 3
"""Pieces of a transcript that does not fit that are named in the reason; the turn's error entry names more."""


def room_left(packet: Packet, calibration: float, losses: Iterable[EntryWrite]) -> int | None:
    """Code points that a turn may add and that certainly fit, besides what is written with its packet and its reply.

    None: unknown, for instance if plugins render entries in their own way.
    """
    if packet.report.plugins:
        return None
    chars = sum(sum(map(len, message.pieces)) for message in packet.messages)
    room = room_chars(packet.report.tokens, chars, packet.report.ceiling, calibration)
    written = chars_of((*packet.report.effects, *losses)) + packet.effects_chars
    return int(room - written) if room is not None and isfinite(written) else None


def overflow_reason(packet: Packet) -> str:
    """Why a packet that does not fit ended its loop, with advice if no summarizing could help."""
    report, expected = packet.report, packet.expected_tokens
    chars = [sum(map(len, message.pieces)) for message in packet.messages]
    instructions = round(expected * chars[0] / sum(chars))
    reason = f"{TOO_LONG.word}: the packet is expected to take {expected} tokens, {report.ceiling} are allowed"
    if report.plan_tokens:
        plans = round(report.plan_tokens * (packet.rate.calibration or 1.0))
        reason = f"{reason}; plans take {plans} of them and are never summarized: set them again in fewer words"
    if report.unfit:
        left = ", ".join(f"{one.path} {one.tokens}" for one in report.unfit[:UNFIT_NAMED])
        reason = f"{reason}; what cannot be left out: {left}"
    if report.edit_tokens:
        edits = round(report.edit_tokens * (packet.rate.calibration or 1.0))
        reason = f"{reason}; the edits of the prompt take {edits} of them and cannot be left out"
    if instructions < report.ceiling:
        return reason
    return f"{reason}; the instructions alone take {instructions}: choose a model with a larger context window"


def after_refusal(packet: Packet, context_length: int, reported: Mapping[str, str]) -> tuple[int, TokenRate]:
    """The window in tokens and the rate for the packet after one that its vendor found too long.

    `reported` has the counts of the refusal, as in ERROR_REASON_CONTEXT_EXCEEDED.
    """
    calibration = ratio_of(int(reported.get("prompt_tokens", 0)), packet.report.tokens)
    rate = TokenRate(calibration, TokenSource.USAGE) if calibration else packet.rate
    window = min(context_length, int(reported.get("context_length", 0)) or context_length)
    expected = replace(packet, rate=rate).expected_tokens
    ceiling = (packet.report.ceiling or context_length) * window // context_length
    if expected > ceiling:
        return window, rate
    # It was expected to fit, and does not.
    return floor(window * SHORTER * expected / ceiling), rate


def reported_window(error: TurnwrightError, model: Model, run: str, turn: int) -> ReportedWindow | None:
    """The window that the refusal of a turn names, if it is smaller than the one that is used."""
    window = int(error.metadata.get("context_length", 0))
    is_smaller = 0 < window < (window_of(model) or CONTEXT_LENGTH_DEFAULT)
    return ReportedWindow(window, model.context_length, run, turn) if is_smaller else None


def refusal_note(error: TurnwrightError, window: ReportedWindow | None) -> str:
    """What people read of a refused packet."""
    note = f"{error.message}. The next turn is sent shorter"
    if window:
        known = f"not {window.known_length or CONTEXT_LENGTH_DEFAULT}, until its alias is set again"
        return f"{note}. From now on its model is taken to have a window of {window.context_length} tokens, {known}."
    return f"{note}."


def may_exceed(note: ModelCallRecord, records: Iterable[CommandRecord], footprint: Footprint, *, is_left: bool) -> bool:
    """Whether a turn may have added more than fits.

    `is_left`: an earlier owner carried out some of its commands, whose additions are not in the footprint.
    """
    if is_left:
        footprint.mark_unknown()
    has_records = False
    for record in records:
        has_records = True
        footprint.record(record.path, record.body, {**record.attributes, "target": record.target})
    return has_records and (note.room_chars is None or footprint.chars > note.room_chars)


async def checked_budget(
    packets: Packets, address: RunAddress, turn: Turn, note: ModelCallRecord, pending: WriteBuffer
) -> CheckBudgetResponse:
    """Whether what a turn added fits into the next packet, by the assembler. Raises TurnwrightError."""
    # The assembler must see it.
    await pending.flush()
    # The next prompt is edited as this one was: what plugins will add to it is not known before.
    known = note.result
    return await packets.check_budget(address, turn, pending.cursor, rate_after(known).calibration, known.edits)
