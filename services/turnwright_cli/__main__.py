"""`turnwright`, also `python -m turnwright_cli`."""
# ruff: noqa: PLC0415 - nothing is loaded before it is needed

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class _LastResort:
    """Turns what a command raised into one exit code and a sentence. No traceback reaches the terminal."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, SystemExit):
            return
        from turnwright_cli.crash_report import report

        raise SystemExit(report(error)) from None


def main() -> None:
    """Run the command line; always ends with SystemExit."""
    # Both are read while gRPC is imported. Its handlers in a fork may crash a command before it begins (signals 6, 11).
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    # The C core of gRPC writes to standard error about connections that come and go; we tell what matters ourselves.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # A process that loads modules makes hardly any garbage, and searches all that it has loaded for it: a tenth of its
    # start. `finish` lets the search begin.
    gc.disable()
    _open_streams()
    with _LastResort():
        from turnwright_cli.app import app

        app(prog_name="turnwright")


def _open_streams() -> None:
    """Give a process whose standard streams are closed some that lead nowhere, before a file gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - for the life of the process


def run() -> None:
    """Run the command line and end the process with it, whatever else still lives in it."""
    try:
        main()
    except SystemExit as ended:
        from turnwright_cli.exit import leave

        leave(ended.code if isinstance(ended.code, int) else int(ended.code is not None))


if __name__ == "__main__":
    run()
