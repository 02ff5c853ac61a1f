"""The canonical log line of a turn, its span, those of its commands, and its metrics.

There is one line when it has ended, by its verdict or with its loop.

`turn_ended` has run, turn, seconds of work, tokens, cost, commands, and the verdict: a status (102: the loop goes on)
and a reason. Other lines in between carry the same run and turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from turnwright_values.types import State, Turn, TurnResult

from turnwright_core.runs import FAILED
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.records import own_call_id
from turnwright_kit.logs import INFO, get_logger, is_logged
from turnwright_kit.scope import bind
from turnwright_kit.telemetry import count, fail, is_on, measure, span, turn_begun
from turnwright_kit.telemetry import turn_ended as end_turn_span
from turnwright_kit.telemetry_names import (
    COMMANDS,
    CONVERSATION,
    COST,
    OPERATION,
    OTHER,
    PROJECT,
    PROVIDER,
    REASON,
    REQUEST_MODEL,
    TOOL,
    TOOL_CALL,
    TURN,
    TURN_DURATION,
    VERDICT,
    provider_of,
)

_WORD: Final = re.compile(r"[a-z][a-z_]{0,39}")

_log = get_logger("turn")


def bind_turn(address: RunAddress, turn: Turn | None) -> None:
    """Add run and turn to everything that is logged from now on; None: no turn yet."""
    bind(run=address.run, turn=turn.number if turn else 0)
    if turn is None:
        return end_turn_span({})
    vendor, _, model = turn.request.vendor_model.partition("/")
    attributes = {OPERATION: "invoke_agent", PROVIDER: provider_of(vendor), REQUEST_MODEL: model}
    return turn_begun({**attributes, CONVERSATION: address.run, TURN: turn.number, PROJECT: address.project})


@contextmanager
def command_span(records: Mapping[str, CommandRecord], path: str, turn: int) -> Iterator[None]:
    """A span around steps of a command of this turn; 0: a client called it."""
    record = records[path]
    call = {} if record.ordinal is None else {TOOL_CALL: own_call_id(turn, record.ordinal)}
    with span(f"execute_tool {record.tool}", {OPERATION: "execute_tool", TOOL: record.tool, **call}):
        yield
        if records[path].state is State.FAILED:
            fail(records[path].outcome.partition(":")[0])


def turn_ended(address: RunAddress, turn: int, result: TurnResult, commands: int) -> None:
    # The line first: it names the span that ends.
    if is_logged(INFO):
        _log_turn(address, turn, result, commands)
    if is_on():
        _measure(result, commands)


def _log_turn(address: RunAddress, turn: int, result: TurnResult, commands: int) -> None:
    usage = result.usage
    cost = {} if usage.cost_usd is None else {"cost_usd": _cost_of(usage.cost_usd, result)}
    _log.info(
        "turn_ended",
        run=address.run,
        turn=turn,
        seconds=result.work_ms / 1000,
        tokens=usage.total_tokens + result.lost_tokens + result.tool_tokens,
        **cost,
        commands=commands,
        verdict=result.status,
        reason=result.reason,
    )


def _cost_of(reply_usd: float, result: TurnResult) -> float:
    """With lost calls and those that tools had made, which have been paid for, too."""
    return reply_usd + result.lost_cost_usd + result.tool_cost_usd


def _measure(result: TurnResult, commands: int) -> None:
    measure(TURN_DURATION, result.work_ms / 1000, {VERDICT: result.status, REASON: _word_of(result.reason)})
    count(COMMANDS, commands)
    if result.usage.cost_usd is not None:
        count(COST, _cost_of(result.usage.cost_usd, result))
    error = _word_of(result.reason) or str(result.status) if result.status >= FAILED else ""
    end_turn_span({VERDICT: result.status, REASON: result.reason, COMMANDS: commands}, error)


def _word_of(reason: str) -> str:
    """The word of a reason, without the sentence, which has figures of its own each time."""
    word = reason.partition(":")[0]
    return word if not word or _WORD.fullmatch(word) else OTHER
