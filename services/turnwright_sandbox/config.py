"""Settings of a sandbox host."""

from __future__ import annotations

from typing import Final

from turnwright_executor.config import (
    FILE_BYTES_MAX,
    FILES_MAX,
    SH_MEMORY_MB_MAX,
    SH_OUTPUT_BYTES_MAX,
    SH_PROCESSES_MAX,
)
from turnwright_kit.sandbox.sandbox import SH_READABLE, SH_SANDBOX, SH_WRITABLE, SandboxChoice
from turnwright_kit.settings import Settings, SettingsError, setting

DEFAULT_LISTEN: Final = "127.0.0.1:7446"


class SandboxSettings(Settings):
    """Its settings. What limits commands and files is as on an executor's host; its secret is its own."""

    runs_commands = True

    sandbox_root: str = setting("Directory below which a sandbox host has projects (docs/sandboxes.md). Required.", "")
    file_bytes_max: int = FILE_BYTES_MAX
    files_max: int = FILES_MAX
    sh_output_bytes_max: int = SH_OUTPUT_BYTES_MAX
    sh_processes_max: int = SH_PROCESSES_MAX
    sh_memory_mb_max: int = SH_MEMORY_MB_MAX
    sh_sandbox: SandboxChoice = SH_SANDBOX
    sh_writable: str = SH_WRITABLE
    sh_readable: str = SH_READABLE
    sh_grace_s: float = 2.0
    """Seconds between SIGTERM and SIGKILL."""

    def after_load(self) -> None:
        if not self.sandbox_root:
            raise SettingsError("TURNWRIGHT_SANDBOX_ROOT: name the directory that the projects are in")
