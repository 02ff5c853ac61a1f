"""`python -m turnwright_mcp.beside`: what calls MCP servers, for one executor that has started it. It ends with it."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Final

from turnwright_kit.main import run_service
from turnwright_mcp.config import DEFAULT_LISTEN, McpSettings
from turnwright_mcp.wiring import build

LEAVE_S: Final = 10.0
"""Seconds that it has to end its servers."""


def _end_with_executor() -> None:
    """Standard input ends when the executor has, however that happened."""
    while os.read(0, 4096):
        continue
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LEAVE_S)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_executor, name="executor", daemon=True).start()
    run_service(McpSettings, DEFAULT_LISTEN, build)
