"""Heartbeats of many streams fall together, and never later than after the longest silence."""

import pytest

from turnwright_core.batching import MOMENTS, heartbeat_due_s


@pytest.mark.parametrize("silence_s", [0.02, 15.0, 30.0])
def test_streams_that_fell_silent_at_any_time_are_reported_at_few_moments_and_in_time(silence_s: float) -> None:
    begins_s = [1000 + silence_s * number / 500 for number in range(500)]
    due_s = [heartbeat_due_s(begin_s, silence_s) for begin_s in begins_s]
    assert len({round(moment_s, 6) for moment_s in due_s}) <= MOMENTS + 1
    waits_s = [due - begin for due, begin in zip(due_s, begins_s, strict=True)]
    assert silence_s * (1 - 1 / MOMENTS) - 1e-6 <= min(waits_s)
    assert max(waits_s) <= silence_s + 1e-6
