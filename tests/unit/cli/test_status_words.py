"""How a run stands in words."""

from __future__ import annotations

import pytest
from turnwright.types.v1 import loop_pb2, run_pb2

from turnwright_cli.status_words import run_words


def loop(status: int, reason: str = "") -> loop_pb2.Loop:
    return loop_pb2.Loop(sequence=1, status=status, reason=reason)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (run_pb2.Run(status=100), "100 idle"),
        (run_pb2.Run(status=100, loops_queued=1), "100 queued"),
        (run_pb2.Run(status=100, loop=loop(100)), "100 queued"),
        (run_pb2.Run(status=102, loop=loop(102), held=True), "102 running"),
        (run_pb2.Run(status=102, loop=loop(102)), "102 interrupted"),
        (run_pb2.Run(status=202, loop=loop(202)), "202 waits"),
        (run_pb2.Run(status=200, loop=loop(200, "update")), "200 done"),
        (run_pb2.Run(status=200, loop=loop(204, "update")), "204 done"),
        (run_pb2.Run(status=200, loop=loop(422, "update")), "422 cannot"),
        (run_pb2.Run(status=200, loop=loop(499, "rejected")), "499 stopped (rejected)"),
        (run_pb2.Run(status=200, loop=loop(499, "expired")), "499 stopped (expired)"),
        (run_pb2.Run(status=500, loop=loop(413, "context")), "413 too large (context)"),
        (run_pb2.Run(status=500, loop=loop(500, "vendor_auth: no key\x1b[2J")), "500 failed (vendor_auth)"),
        (run_pb2.Run(status=200, loop=loop(200), loops_queued=1), "200 done"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_is_reported_as_its_latest_loop_ended_and_as_what_becomes_of_it(run, words) -> None:
    assert run_words(run) == words


def test_who_cannot_know_whether_a_run_is_held_calls_it_running() -> None:
    assert run_words(run_pb2.Run(status=102, loop=loop(102)), knows_holder=False) == "102 running"
