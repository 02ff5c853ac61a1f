"""Pauses between tries: they double up to the longest, and begin anew after a success."""

from itertools import islice

import pytest

from turnwright_core.backoff import Backoff
from turnwright_executor.peers.store_writes import BUSY_BACKOFF, BUSY_RETRIES_MAX
from turnwright_executor.runs.scheduler import SERVICE_BACKOFF, SERVICE_RETRIES_MAX


def test_a_pause_doubles_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0)

    assert [backoff.pause_s(failures) for failures in (1, 2, 3, 4, 5, 10_000)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_the_pauses_of_a_row_of_failures_begin_anew_each_time() -> None:
    backoff = Backoff(0.5, 3.0)

    assert [list(islice(backoff.pauses(), 4)) for _ in range(2)] == [[0.5, 1.0, 2.0, 3.0]] * 2


@pytest.mark.parametrize(
    ("backoff", "tries", "seconds"),
    [(BUSY_BACKOFF, BUSY_RETRIES_MAX, 1.55), (SERVICE_BACKOFF, SERVICE_RETRIES_MAX, 9.3)],
    ids=["a busy store", "a service that is away"],
)
def test_all_tries_together_take_as_long_as_is_said(backoff, tries, seconds) -> None:
    assert sum(islice(backoff.pauses(), tries)) == pytest.approx(seconds)
