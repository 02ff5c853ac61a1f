"""What the command line reads from the environment, beside what each client reads. Options win over these."""

from __future__ import annotations

from turnwright_client.config import ClientSettings
from turnwright_core.kit.settings import setting


class CliSettings(ClientSettings):
    """Settings of the command line."""

    project: str = setting(default="", description="Directory of the project. Empty: the current one.")
    run: str = setting(default="", description="Alias of the run that `act` and `ask` continue or create.")
    only: str = setting(default="", description="Services that `serve` runs, separated by commas. Empty: all four.")
    join_wait_s: float = setting(
        default=10.0,
        ge=0,
        le=600,
        description="Seconds that a stack which owns the database but does not answer yet is waited for.",
    )
    idle_poll_s: float = setting(
        default=0.5,
        gt=0,
        le=60,
        description="Seconds between two looks whether an embedded stack that others use has become idle.",
    )
    leave_s: float = setting(
        default=60.0,
        gt=0,
        le=3600,
        description="Seconds that a command may take to end once its work is done; then it leaves what still runs.",
    )
    doctor_timeout_s: float = setting(
        default=60.0, gt=0, le=3600, description="Deadline in seconds of asking all vendors for all models."
    )
