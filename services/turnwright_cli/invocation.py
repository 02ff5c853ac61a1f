"""The options shared by all commands, and the parsing of option values."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Final

from turnwright.types.v1 import budget_pb2, settings_pb2

from turnwright_cli.config import CliSettings, TaskDefaults, apply_file, config_file, task_defaults
from turnwright_cli.exit_codes import usage
from turnwright_core.kit.settings import load


class Invocation:
    """The shared options. Settings are read when first needed."""

    SHARED: Final = ("project", "as_json", "server")

    def __init__(self, project: str | None = None, server: str | None = None, as_json: bool | None = None) -> None:
        """Options that were not given are taken from the environment."""
        self.as_json = bool(as_json)
        """Whether standard output is JSON, one message per line."""
        self._project = project
        self._server = server

    @cached_property
    def settings(self) -> CliSettings:
        """From options, variables, and the person's file, in this order. Raises SettingsError."""
        apply_file(config_file(), os.environ)
        return load(CliSettings, server=self._server)

    @cached_property
    def defaults(self) -> TaskDefaults:
        """What tasks get that options leave open. Raises SettingsError."""
        return task_defaults(None if self.settings.server else Path(self.root))

    @cached_property
    def root(self) -> str:
        """The project's absolute path. Raises FailureError if it is not a directory here, unless a server is used."""
        named = self._project or self.settings.project or "."
        path = Path(named).expanduser().absolute()
        if not self.settings.server and not path.is_dir():
            raise usage(f"{named!r} is not a directory. Name an existing one with --project.")
        return str(path if self.settings.server else path.resolve())


def budget_of(
    max_turns: int | None, max_tokens: int | None, max_cost: float | None, max_seconds: float | None
) -> budget_pb2.Budget | None:
    """The limits that were given; None if none were."""
    if (max_turns, max_tokens, max_cost, max_seconds) == (None, None, None, None):
        return None
    return budget_pb2.Budget(
        turns_max=max_turns or 0,
        tokens_max=max_tokens or 0,
        cost_usd_max=max_cost or 0.0,
        wall_s_max=max_seconds or 0.0,
    )


def call_style(word: str | None) -> settings_pb2.CallStyle.ValueType | None:
    """The value of --calls; None where it was not given."""
    return settings_pb2.CallStyle.Value(f"CALL_STYLE_{word.upper()}") if word else None
