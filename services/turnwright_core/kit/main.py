"""The main of a service's own process: settings, logs, server, signals."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TypeVar

from turnwright_core.kit.logs import configure_logs
from turnwright_core.kit.server import RunningServer, Service, serve_until_stopped
from turnwright_core.kit.settings import Settings, SettingsError, exit_with, load

S = TypeVar("S", bound=Settings)


def run_service(kind: type[S], default_listen: str, build: Callable[[S, str], Service]) -> None:
    """Serve one service until SIGTERM or SIGINT; `build` gets the settings and the deployment's secret."""
    try:
        settings = load(kind)
        secret = settings.secret()
    except (SettingsError, OSError, ValueError) as error:
        exit_with(error)
    configure_logs(settings.log_level)
    server = RunningServer(build(settings, secret), settings.listen or default_listen, secret, settings.drain_s)
    try:
        asyncio.run(serve_until_stopped(server))
    except SettingsError as error:
        exit_with(error)
    except OSError as error:
        sys.stderr.write(f"{server.service.name}: {error}\n")
        raise SystemExit(1) from None
