import pytest
from turnwright.types.v1 import run_pb2, settings_pb2, turn_pb2, usage_pb2
from turnwright_values.types import (
    Budget,
    Cursor,
    ForkOrigin,
    Loop,
    LoopSettings,
    Mode,
    Run,
    RunSettings,
    Turn,
    TurnRequest,
    TurnResult,
    Usage,
)

from turnwright_core.errors import InvalidError
from turnwright_core.wire.runs import (
    reasoning_from_pb,
    run_from_pb,
    run_settings_from_pb,
    run_to_pb,
    turn_from_pb,
    turn_result_from_pb,
    turn_to_pb,
    usage_from_pb,
    usage_to_pb,
)

LOOP = Loop(
    2, LoopSettings(Mode.ACT, "m", yolo=True, budget=Budget(1, 2, 0.5, 3.0)), "do it", 102, usage=Usage(1, 2, 3)
)
RUN = Run(
    "p",
    "r",
    RunSettings("m", 0.0, "", 4096),
    102,
    3,
    LOOP,
    "done",
    1,
    9,
    1_700_000_000_123,
    5,
    ForkOrigin("q", 2),
    True,
)
TURN = Turn(
    4,
    2,
    TurnRequest("m", "v/m", 4096, 0.25, ("get", "set")),
    TurnResult("stop", usage=Usage(cost_usd=0.0), cursor=Cursor("a", 1, 2, 3)),
    1_700_000_000_001,
)


def test_values_come_back_as_they_were() -> None:
    assert run_from_pb(run_to_pb(RUN)) == RUN
    assert turn_from_pb(turn_to_pb(TURN)) == TURN


def test_a_time_is_a_timestamp_outside_and_absent_where_there_is_none() -> None:
    message = turn_to_pb(TURN)
    assert (message.begin_time.seconds, message.begin_time.nanos) == (1_700_000_000, 1_000_000)
    assert not message.HasField("end_time")


def test_what_a_message_does_not_have_is_none_or_the_default() -> None:
    assert run_settings_from_pb(settings_pb2.RunSettings(temperature=0.0)) == RunSettings(temperature=0.0)
    assert usage_from_pb(usage_pb2.Usage()) == Usage()
    assert turn_result_from_pb(turn_pb2.TurnResult(status=102)) == TurnResult()
    assert run_from_pb(run_pb2.Run(run="r")).loop is None


def test_zero_is_distinguished_from_nothing() -> None:
    assert usage_to_pb(Usage(cost_usd=0.0)).HasField("cost_usd")
    assert not usage_to_pb(Usage()).HasField("cost_usd")


def test_a_level_of_reasoning_that_is_not_known_is_refused_and_none_is_none() -> None:
    with pytest.raises(InvalidError, match="999 is not a valid level of reasoning"):
        reasoning_from_pb(settings_pb2.Reasoning(effort=999))  # type: ignore[arg-type]
    assert reasoning_from_pb(settings_pb2.Reasoning()) is None
