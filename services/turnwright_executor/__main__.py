"""`python -m turnwright_executor`: the executor in a process of its own."""

import asyncio

from turnwright_core.kit.main import run_service
from turnwright_executor.config import DEFAULT_LISTEN, ExecutorSettings
from turnwright_executor.wiring import build

if __name__ == "__main__":
    # The processes of sh and env are watched by asyncio's own loop, as in a process with all services.
    run_service(ExecutorSettings, DEFAULT_LISTEN, build, asyncio.new_event_loop)
