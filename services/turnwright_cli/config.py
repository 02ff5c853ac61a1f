"""What the command line reads from the environment, beside what each client reads. Options win over these."""

from __future__ import annotations

from pydantic import Field

from turnwright_client.config import ClientSettings


class CliSettings(ClientSettings):
    """Settings of the command line."""

    project: str = Field(default="", description="Directory of the project. Empty: the current one.")
    run: str = Field(default="", description="Alias of the run that `act` and `ask` continue or create.")
    only: str = Field(default="", description="Services that `serve` runs, separated by commas. Empty: all four.")
    join_wait_s: float = Field(
        default=10.0,
        ge=0,
        le=600,
        description="Seconds that a stack which owns the database but does not answer yet is waited for.",
    )
    idle_poll_s: float = Field(
        default=0.5,
        gt=0,
        le=60,
        description="Seconds between two looks whether an embedded stack that others use has become idle.",
    )
    doctor_timeout_s: float = Field(
        default=60.0, gt=0, le=3600, description="Deadline in seconds of asking all vendors for all models."
    )
