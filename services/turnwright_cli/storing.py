"""`store backup` and `store restore`: their output and their errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from turnwright_cli.exit_codes import DONE, FAILED, FailureError
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import console, write_line
from turnwright_cli.plain import safe_line
from turnwright_kit.settings import load
from turnwright_store.config import StoreSettings
from turnwright_store.edge.backup import back_up, restore
from turnwright_store.edge.database_copy import BackupError, Report

Copy = Callable[[Callable[[str], None]], Report]


def backup_store(call: Invocation, *, file: Path, db: str | None) -> int:
    report = _done(lambda report: back_up(db or configured(), file, report))
    _show(report, "Backed up {} to", as_json=call.as_json)
    return DONE


def restore_store(call: Invocation, *, file: Path, db: str | None) -> int:
    report = _done(lambda report: restore(file, db or configured(), report))
    _show(report, "Restored {} into", as_json=call.as_json)
    return DONE


def configured() -> str:
    settings = load(StoreSettings)
    return settings.db if settings.is_on_postgresql else str(settings.database_file)


def _done(copy: Copy) -> Report:
    try:
        with Console(stderr=True).status("") as status:
            return copy(lambda text: status.update(Text(safe_line(text))))
    except BackupError as error:
        raise FailureError(FAILED, str(error)) from None


def _show(report: Report, done: str, *, as_json: bool) -> None:
    if as_json:
        write_line(json.dumps(asdict(report)))
        return
    runs, rows = report.tables["runs"], sum(report.tables.values())
    amount = f"{runs:,} runs ({rows:,} rows, {report.size_bytes / 1e6:,.1f} MB)"
    console().print(Text(f"{done.format(amount)} {safe_line(report.file)}"))
