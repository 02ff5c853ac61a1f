"""`python -m turnwright_assembler`: the assembler as a separate process."""

from turnwright_assembler.config import DEFAULT_LISTEN, AssemblerSettings
from turnwright_assembler.wiring import build
from turnwright_kit.main import run_service

if __name__ == "__main__":
    run_service(AssemblerSettings, DEFAULT_LISTEN, build)
