"""`python -m turnwright_sandbox`: has projects for executors elsewhere."""

from turnwright_kit.main import run_service
from turnwright_sandbox.config import DEFAULT_LISTEN, SandboxSettings
from turnwright_sandbox.wiring import build

if __name__ == "__main__":
    run_service(SandboxSettings, DEFAULT_LISTEN, build)
