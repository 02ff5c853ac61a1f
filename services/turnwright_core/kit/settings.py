"""Settings come from TURNWRIGHT_* variables, are checked at the start, and are frozen from then on.

Each service has one class of them in its `config.py`; docs/settings.md is made from these classes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from turnwright_core.kit.home import default_home, read_or_make_token

PREFIX = "TURNWRIGHT_"


class Settings(BaseSettings):
    """What every service reads."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", populate_by_name=True)

    home: Path = Field(default_factory=default_home, description="Directory of database, token, sockets and log.")
    token: str = Field(
        default="", repr=False, description="Secret of the deployment. Empty: the file `token` in the home."
    )
    listen: str = Field(default="", description="Address this service listens on. Empty: its own default.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severity logged."
    )
    drain_s: float = Field(
        default=10.0, ge=0, le=600, description="Seconds that calls under way have to end when a service is stopped."
    )

    def secret(self) -> str:
        """The deployment's secret; makes the token file where there is none."""
        return self.token or read_or_make_token(self.home)


class PeerSettings(Settings):
    """What a service reads that calls others."""

    store: str = Field(default="127.0.0.1:7441", description="Address of the store.")
    rpc_timeout_s: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="Deadline in seconds of a call to another service that answers at once.",
    )


S = TypeVar("S", bound=Settings)


def load(kind: type[S], **overrides: object) -> S:
    """Settings from the environment; overrides that are not None win. Raises SettingsError naming the setting."""
    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        return kind(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsError(_lines(kind, error)) from None


class SettingsError(Exception):
    """One or more settings are wrong; the text has a line each, beginning with the variable's name."""


def _lines(kind: type[Settings], error: ValidationError) -> str:
    return "\n".join(
        f"{PREFIX}{'_'.join(str(part) for part in item['loc']).upper()}: {item['msg']}{_input(kind, item)}"
        for item in error.errors()
    )


def _input(kind: type[Settings], item: ErrorDetails) -> str:
    """What the setting was, unless it may hold a secret."""
    field = kind.model_fields.get(str(item["loc"][0])) if item["loc"] else None
    return f" (it is {item['input']!r})" if field is None or field.repr else ""


def exit_with(error: Exception) -> NoReturn:
    """End a service's process over its settings, as a usage error."""
    sys.stderr.write(f"{error}\n")
    raise SystemExit(2)
