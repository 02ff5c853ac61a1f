"""What a test needs beside Python: a server, a program, the shared cases.

Where it is not there the test is left out, and the end of the run says how many were and for want of what. With
`TURNWRIGHT_TEST_COMPLETE=true`, as in `.ci/run`, such a test fails.
"""

import os
from typing import NoReturn

import pytest

IS_COMPLETE = os.environ.get("TURNWRIGHT_TEST_COMPLETE") == "true"
BEGIN = "needs "


def left_out(what: str, how: str, *, is_module: bool = False) -> NoReturn:
    """Leave out the test, or the module that is being imported: `what` it needs, and `how` to come by it."""
    reason = f"{BEGIN}{what}: {how}"
    if IS_COMPLETE:
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=is_module)


def needs(what: str, how: str, *, there: object) -> pytest.MarkDecorator:
    """Marks tests that need something, given whether it is there."""
    return pytest.mark.skipif(not there and not IS_COMPLETE, reason=f"{BEGIN}{what}: {how}")


def need_of(reason: str) -> str:
    """What a skipped test needs, by its reason; empty where it needs nothing that could be had."""
    start = reason.find(BEGIN)
    return reason[start + len(BEGIN) :].partition(":")[0] if start >= 0 else ""
