"""Last-resort error report: what the user reads about an unexpected error, and where the details are."""

from __future__ import annotations

import secrets
from pathlib import Path

from turnwright_cli.exit_codes import FAILED, INTERRUPTED, USAGE, FailureError, failure_of
from turnwright_cli.output import complain
from turnwright_cli.plain import safe_text
from turnwright_core.errors import TurnwrightError
from turnwright_kit.home import default_home
from turnwright_kit.logs import configure_logs, get_logger
from turnwright_kit.settings import Settings, SettingsError, load


def report(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    failure = expected(error) or _unexpected(error)
    complain(safe_text(failure.message))
    return failure.exit_code


def expected(error: BaseException) -> FailureError | None:
    """The failure that an error of ours corresponds to; None for a bug."""
    if isinstance(error, FailureError):
        return error
    if isinstance(error, TurnwrightError):
        return failure_of(error)
    if isinstance(error, SettingsError):
        return FailureError(USAGE, f"a setting is wrong.\n{error}")
    if isinstance(error, OSError):
        return FailureError(FAILED, f"{error}")
    return None


def _unexpected(error: BaseException) -> FailureError:
    """Print one line with an id. The details, which may contain secrets, go to the log only."""
    error_id = secrets.token_hex(8)
    try:
        home = load(Settings).home
    except SettingsError:
        home = default_home()
    place = _log(home / "turnwright.log", error, error_id)
    return FailureError(FAILED, f"this is a bug in Turnwright. For details, look for {error_id} in {place}.")


def _log(file: Path, error: BaseException, error_id: str) -> str:
    try:
        configure_logs("info", file)
    except OSError:
        return "nowhere: the log cannot be written"
    get_logger("cli").error("command_failed", error_id=error_id, exc_info=error)
    return str(file)
