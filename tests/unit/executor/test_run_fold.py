"""What a run that is loaded is doing, as far as no event has told it. Row RS11."""

import pytest
from turnwright.types.v1 import loop_pb2, run_pb2, session_pb2
from turnwright_values.types import Entry, RequestKind, State, Turn, TurnRequest, TurnResult

from turnwright_executor.ports.publishing import StreamBegan, StreamBroke
from turnwright_executor.watching.run_fold import RunFold

PHASE = session_pb2.HistoryCompression.Phase
RUN = run_pb2.Run(project="p", run="r", status=102, turn=2, loop=loop_pb2.Loop(sequence=1, status=102))
SUMMARY = Entry(path="assistant://2", scheme="assistant", body="Short.", state=State.RESOLVED, turn=2, position=1)


def turn(number: int, kind: RequestKind = RequestKind.COMPACTION, result: TurnResult | None = None) -> Turn:
    return Turn(number, 1, TurnRequest(kind=kind), result)


def phase(fold: RunFold) -> int | None:
    told = fold.compression_now()
    return told.phase if told else None


def test_the_phase_of_a_summary_follows_from_how_far_its_turn_has_come():
    fold = RunFold()
    fold.load(RUN, (), turns=[turn(2)])
    assert fold.view.compression == fold.compression_now()
    phases = [phase(fold)]
    for event in (StreamBegan(), StreamBroke(""), StreamBegan()):
        fold.stream(2, event)
        phases.append(phase(fold))
    fold.load(RUN, [SUMMARY], turns=[turn(2)])
    phases.append(phase(fold))
    fold.take_turns([turn(2, result=TurnResult()), turn(3, RequestKind.PRIMARY)])
    phases.append(phase(fold))
    assert phases == [
        PHASE.PHASE_ASKING,
        PHASE.PHASE_WRITING,
        PHASE.PHASE_ASKING,
        PHASE.PHASE_WRITING,
        PHASE.PHASE_STORED,
        None,
    ]


@pytest.mark.parametrize("turns", [[], [turn(2, RequestKind.PRIMARY)], [turn(2, result=TurnResult())]])
def test_a_run_in_which_no_summary_is_asked_for_is_not_compressing(turns):
    fold = RunFold()
    fold.load(RUN, (), turns=turns)
    assert (fold.view.compression, phase(fold)) == (None, None)
