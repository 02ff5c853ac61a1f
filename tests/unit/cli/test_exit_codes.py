"""Exit codes follow the loop; every reason has one, and a sentence (architecture 15)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from turnwright_cli.crash_report import expected, report
from turnwright_cli.exit_codes import EXIT_OF_LOOP, FailureError, advice_after, failure_of
from turnwright_core.errors import Reason, fault
from turnwright_core.runs import LOOP_ENDED, PROPOSED, STATUSES
from turnwright_kit.settings import SettingsError

DOCS = Path(__file__).parents[3] / "docs"
LOOPS = {200: 0, 204: 0, 202: 6, 422: 3, 499: 4, 413: 5, 500: 5}
USAGE = {
    Reason.INVALID_FIELD,
    Reason.LIMIT_EXCEEDED,
    Reason.PROJECT_NOT_FOUND,
    Reason.RUN_NOT_FOUND,
    Reason.ENTRY_NOT_FOUND,
    Reason.MODEL_NOT_FOUND,
    Reason.MODEL_REQUIRED,
    Reason.RUN_EXISTS,
    Reason.TRANSITION_FORBIDDEN,
    Reason.NOT_PROPOSED,
    Reason.WORKSPACE_UNAVAILABLE,
    Reason.TURN_NOT_FOUND,
    Reason.SCHEME_FIXED,
    Reason.COMMAND_GATED,
    Reason.PROMPT_MESSAGE_UNKNOWN,
    Reason.PROMPT_TARGET_MISSING,
    Reason.PROMPT_SHAPE_REFUSED,
}


def test_every_status_that_ends_following_has_its_exit_code() -> None:
    assert EXIT_OF_LOOP == LOOPS
    assert set(EXIT_OF_LOOP) == LOOP_ENDED | {PROPOSED}


def test_the_page_for_programs_lists_each_status_with_its_exit_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d{3}(?:, \d{3})*) \|", (DOCS / "cli.md").read_text(), re.MULTILINE)
    assert {int(status): int(code) for code, statuses in rows for status in statuses.split(", ")} == EXIT_OF_LOOP


def test_the_contract_names_every_status() -> None:
    comment = (DOCS.parent / "protos/turnwright/types/v1/loop.proto").read_text().partition("int32 status")[0]
    assert set(map(int, re.findall(r"\b\d{3}\b", comment.rpartition(";")[2]))) == set(STATUSES)


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.name)
def test_every_reason_has_an_exit_code_and_keeps_its_sentence(reason) -> None:
    failure = failure_of(fault(reason, "What happened.", limit="3", field="prompt", unit="bytes"))

    assert failure.exit_code == (2 if reason in USAGE else 5)
    assert failure.message.startswith("What happened.")


def test_a_missing_model_tells_how_to_add_one() -> None:
    failure = failure_of(fault(Reason.MODEL_NOT_FOUND, "There is no model 'x'. Available: a, b.", available="a,b"))

    assert "Available: a, b." in failure.message
    assert "turnwright models add" in failure.message


@pytest.mark.parametrize(
    ("path", "advice"),
    [("plan://main", "turnwright plan show"), ("log://turn_1/sh/a", "turnwright runs show"), ("s", "")],
)
def test_what_is_missing_decides_which_command_shows_what_there_is(path, advice) -> None:
    said = failure_of(fault(Reason.ENTRY_NOT_FOUND, "It is not there.", path=path)).message.removeprefix(
        "It is not there."
    )
    assert (advice in said, bool(said)) == (True, bool(advice))


def test_a_loop_that_failed_tells_what_to_do() -> None:
    assert "turnwright doctor" in advice_after("vendor_auth: The key was refused: check it.")
    assert "turnwright inbox" in advice_after("expired")
    assert [advice_after(reason) for reason in ("", "update", "strikes_max", "internal: x")] == [""] * 4


def test_a_limit_is_named_with_its_unit() -> None:
    failure = failure_of(fault(Reason.LIMIT_EXCEEDED, "Too long.", field="prompt", limit=1048576, unit="bytes"))

    assert failure.message.endswith("The limit of prompt is 1048576 bytes.")


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (FailureError(4, "x"), 4),
        (fault(Reason.SERVICE_UNAVAILABLE, "x"), 5),
        (SettingsError("TURNWRIGHT_X: wrong"), 2),
        (PermissionError(13, "denied"), 5),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_expected_error_is_reported_without_a_traceback(error, exit_code, capsys) -> None:
    assert report(error) == exit_code
    assert "Traceback" not in capsys.readouterr().err


def test_a_fault_of_ours_is_one_line_with_an_id_and_its_text_is_in_the_log(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("TURNWRIGHT_HOME", str(tmp_path))
    error = ZeroDivisionError("s3cret")

    assert expected(error) is None
    assert report(error) == 5
    told = capsys.readouterr().err
    log = (tmp_path / "turnwright.log").read_text()
    error_id = told.split("look for ")[1].split()[0]
    assert told.count("\n") == 1
    assert "s3cret" not in told
    assert error_id in log
    assert "s3cret" in log
