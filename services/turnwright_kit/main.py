"""The main function of a service's own process: settings, logs, server, signals."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TypeVar

from turnwright_core.errors import TurnwrightError, message_of
from turnwright_kit.event_loop import EventLoop
from turnwright_kit.logs import configure_logs
from turnwright_kit.memory import allow_open_files, freeze_loaded, hide_memory
from turnwright_kit.pages import serve_readiness
from turnwright_kit.server import RunningServer, serve_until_stopped
from turnwright_kit.service import Service
from turnwright_kit.settings import Settings, SettingsError, exit_with, load
from turnwright_kit.telemetry import configure_telemetry

S = TypeVar("S", bound=Settings)


def _read_arguments(module: str) -> None:
    """Handles --help, and ends the process with 2 for any other argument: a service is configured by variables alone.

    Starting anyway would give a server to somebody who asked for something else.
    """
    if len(sys.argv) == 1:
        return
    import argparse  # noqa: PLC0415 - only somebody who mistyped needs it

    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description="Serves until SIGTERM or SIGINT. Its settings are environment variables, TURNWRIGHT_*; "
        "`turnwright serve` takes options.",
    )
    parser.parse_args()


def run_service(
    kind: type[S],
    default_listen: str,
    build: Callable[[S, str], Service],
) -> None:
    """Serve one service until SIGTERM or SIGINT; `build` gets the settings and the deployment's secret.

    Ends the process where the command line has arguments.
    """
    package = kind.__module__.partition(".")[0]
    _read_arguments(package)
    hide_memory()
    allow_open_files()
    try:
        settings = load(kind)
        secret = settings.secret()
    except (SettingsError, OSError, ValueError) as error:
        exit_with(error)
    configure_logs(settings.log_level)
    try:
        stop_telemetry = configure_telemetry(settings.telemetry, package.removeprefix("turnwright_"))
        stop_probes = serve_readiness(settings.ready_listen)
    except (OSError, ModuleNotFoundError) as error:
        exit_with(error)
    server = RunningServer(build(settings, secret), settings.listen or default_listen, secret, settings.drain_s)
    freeze_loaded()
    try:
        with asyncio.Runner(loop_factory=EventLoop) as runner:
            runner.run(serve_until_stopped(server, lame_duck_s=settings.lame_duck_s))
    except SettingsError as error:
        exit_with(error)
    except (OSError, TurnwrightError) as error:
        sys.stderr.write(f"{server.service.name}: {message_of(error)}\n")
        raise SystemExit(1) from None
    finally:
        stop_probes()
        stop_telemetry()
