"""Settings of the command line, in addition to those of every client. Options take precedence."""

from __future__ import annotations

from typing import Final

from turnwright_client.config import ClientSettings
from turnwright_core.kit.settings import setting

CHECK_MODELS_TIMEOUT_S: Final = 60.0
"""Deadline for checking all models with their vendors, in seconds."""


class CliSettings(ClientSettings):
    """Settings of the command line."""

    project: str = setting("Project directory. Empty: the current directory.", "")
    run: str = setting("Alias of the run that `act` and `ask` continue or create.", "")
    only: str = setting("Services that `serve` runs, separated by commas. Empty: all four.", "")
