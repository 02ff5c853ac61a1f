"""What the command line reads from the environment, beside what each client reads. Options win over these."""

from __future__ import annotations

from turnwright_client.config import ClientSettings
from turnwright_core.kit.settings import setting


class CliSettings(ClientSettings):
    """Settings of the command line."""

    project: str = setting(default="", description="Project directory. Empty: the current directory.")
    run: str = setting(default="", description="Alias of the run that `act` and `ask` continue or create.")
    only: str = setting(default="", description="Services that `serve` runs, separated by commas. Empty: all four.")
    join_wait_s: float = setting(
        default=10.0,
        ge=0,
        le=600,
        description="How long to wait for a stack that owns the database but does not answer yet, in seconds.",
    )
    idle_poll_s: float = setting(
        default=0.5,
        gt=0,
        le=60,
        description="How often an embedded stack that other commands use checks whether it is idle, in seconds.",
    )
    leave_s: float = setting(
        default=60.0,
        gt=0,
        le=3600,
        description="How long a command may take to exit after its work is done, in seconds.",
    )
    doctor_timeout_s: float = setting(
        default=60.0, gt=0, le=3600, description="Deadline for asking all vendors about all models, in seconds."
    )
