"""`turnwright`, also `python -m turnwright_cli`."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress


def main() -> None:
    # gRPC reads both at import. Its fork handlers may crash a child process before it starts (signals 6, 11).
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    # The C core of gRPC logs transient connections to standard error; we report what matters ourselves.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Importing creates hardly any garbage, but each collection traverses all loaded modules: a tenth of the start-up
    # time. `finish` turns the collector on again.
    gc.disable()
    _open_streams()
    from turnwright_cli.app import app

    app(prog_name="turnwright")


def _open_streams() -> None:
    """Open /dev/null for closed standard streams, before another file gets their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - for the life of the process


def run() -> None:
    """Run the command line, then end the process, whatever is still running in it.

    Everything is stored and printed by then, and threads of the event loop or of gRPC may never return.
    """
    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:  # noqa: BLE001 - no traceback reaches the terminal
        from turnwright_cli.crash_report import report

        code = report(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    run()
