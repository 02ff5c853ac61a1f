"""`python -m turnwright_executor`: the executor in a process of its own."""

from turnwright_executor.config import DEFAULT_LISTEN, ExecutorSettings
from turnwright_executor.wiring import build
from turnwright_kit.main import run_service

if __name__ == "__main__":
    run_service(ExecutorSettings, DEFAULT_LISTEN, build)
