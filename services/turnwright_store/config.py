"""Every knob of the store, from TURNWRIGHT_* variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import Field, PrivateAttr

from turnwright_core.errors import InvalidError
from turnwright_core.kit.settings import PREFIX, Settings, SettingsError
from turnwright_core.runs import Model
from turnwright_store.domain.checks import check_model, check_name

MODEL_PREFIX: Final = f"{PREFIX}MODEL_"
CONTEXT_PREFIX: Final = f"{PREFIX}CONTEXT_"

CONTEXT_LENGTH_MAX: Final = 2**32 - 1
"""Longest context window that the contract can say, in tokens."""


@dataclass(frozen=True, slots=True)
class ModelSeeds:
    """What the environment says of models, by alias as the variables write it (RU099)."""

    vendor_models: Mapping[str, str]
    context_lengths: Mapping[str, int]


class StoreSettings(Settings):
    """What the store reads."""

    database: Path | None = Field(
        default=None, description="Database file of the store. Empty: `turnwright.db` in the home."
    )
    store_queue_max: int = Field(
        default=4096, ge=1, le=1_000_000, description="Writes that wait for the store's writer before more are refused."
    )
    store_batch_max: int = Field(
        default=256, ge=1, le=4096, description="Writes that share one transaction of the store."
    )
    store_readers: int = Field(default=2, ge=1, le=64, description="Connections of the store that read.")
    heartbeat_s: float = Field(
        default=10.0, gt=0, le=3600, description="Seconds of silence after which a watcher is sent a heartbeat."
    )
    loops_queued_max: int = Field(default=100, ge=1, le=10_000, description="Loops that may wait in one run.")
    pattern_s_max: float = Field(
        default=5.0, gt=0, le=60, description="Seconds that matching the patterns of one request may take."
    )
    idempotency_days: int = Field(
        default=7, ge=1, le=365, description="Days after which the answer to a request id is forgotten."
    )
    _seeds: ModelSeeds = PrivateAttr()

    def model_post_init(self, _context: Any, /) -> None:
        """Read the models of the environment. Raises SettingsError."""
        self._seeds = read_seeds(os.environ)

    @property
    def seeds(self) -> ModelSeeds:
        """Models of the environment."""
        return self._seeds

    @property
    def database_file(self) -> Path:
        """Where the database is."""
        return self.database or self.home / "turnwright.db"


def read_seeds(environment: Mapping[str, str]) -> ModelSeeds:
    """Models and context lengths of an environment. Raises SettingsError with a line for each wrong variable."""
    vendor_models: dict[str, str] = {}
    context_lengths: dict[str, int] = {}
    wrong: list[str] = []
    for variable in sorted(environment):
        try:
            if variable.startswith(MODEL_PREFIX):
                alias = variable.removeprefix(MODEL_PREFIX)
                check_model(Model(alias, environment[variable]))
                vendor_models[alias] = environment[variable]
            elif variable.startswith(CONTEXT_PREFIX):
                alias = variable.removeprefix(CONTEXT_PREFIX)
                check_name("alias", alias)
                context_lengths[alias] = _tokens(environment[variable])
        except (InvalidError, ValueError) as error:
            wrong.append(f"{variable}: {error}")
    if wrong:
        raise SettingsError("\n".join(wrong))
    return ModelSeeds(vendor_models, context_lengths)


def _tokens(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= CONTEXT_LENGTH_MAX):
        raise ValueError(f"must be a number of tokens from 1 to {CONTEXT_LENGTH_MAX}; it is {text!r}")
    return int(text)
