"""When a schedule that a client sets happens next. Source: rows RE07, RH04; schedule.proto."""

from __future__ import annotations

import pytest
from turnwright_values.types import Schedule

from turnwright_store.domain.schedules import check_schedule


@pytest.mark.parametrize("next_ms", [0, 1, -(2**63), 2**63 * 1000])
def test_the_times_that_a_client_sends_are_ignored(next_ms) -> None:
    asked = Schedule("s", every_s=60, next_ms=next_ms, last_ms=next_ms, fired=7)
    assert check_schedule(asked, 5_000) == Schedule("s", every_s=60, next_ms=65_000)
