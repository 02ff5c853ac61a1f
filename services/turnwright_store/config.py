"""Every knob of the store, from TURNWRIGHT_* variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from turnwright_values.types import Model

from turnwright_core.errors import InvalidError, message_of
from turnwright_kit.settings import PREFIX, Settings, SettingsError, setting
from turnwright_store.domain.checks import check_model, check_name
from turnwright_store.domain.limits import WriteLimits

DEFAULT_LISTEN: Final = "127.0.0.1:7441"

MODEL_PREFIX: Final = f"{PREFIX}MODEL_"
CONTEXT_PREFIX: Final = f"{PREFIX}CONTEXT_"

POSTGRESQL_SCHEMES: Final = ("postgresql", "postgresql+psycopg", "postgresql+asyncpg", "postgres")
"""How a URL of a PostgreSQL database may begin; a driver that others would use for it changes nothing."""

CONTEXT_LENGTH_MAX: Final = 2**32 - 1
"""Longest context window that the contract can say, in tokens."""


class ModelSeeds(Struct, frozen=True):
    """What the environment says of models, by alias as the variables write it (RU099)."""

    vendor_models: Mapping[str, str]
    context_lengths: Mapping[str, int]


class StoreSettings(Settings):
    """What the store reads."""

    db: str = setting(
        "The store's database: an SQLite file, or a URL `postgresql://user:password@host:port/name` for "
        "replicas. Empty: `turnwright.db` in the home.",
        "",
        repr=False,
        check=lambda db: checked_url(db) if "://" in db else db,
    )
    db_statement_s: float = setting(
        "Time limit for one PostgreSQL statement, in seconds. A server that is silent for twice as long is dropped.",
        30.0,
        gt=0,
        le=3600,
    )
    db_mmap_mb: int = setting(
        "How much of the SQLite file each connection maps into memory, in MiB, if SQLite allows it. 0: none.",
        0,
        ge=0,
        le=1024 * 1024,
    )
    rules: str = setting(
        "File with the [approval rules](approval-rules.md#rules-of-the-deployment) of the deployment. Every store "
        "reads its own when it starts. Empty: `rules.toml` in the home, if there is one.",
        "",
    )
    db_readers: int = setting("Number of database connections for reading.", 2, ge=1, le=64)
    assembly: Literal["packet", "transcript"] = setting(
        "How a run is sent to its model if neither its task nor its project says: as a `packet` of sections, or as a "
        "`transcript`.",
        "packet",
    )
    loops_queued_max: int = setting(
        "Maximum number of loops that may queue in one run, and of messages that may wait for its next turn.",
        100,
        ge=1,
        le=10_000,
    )
    lease_s: float = setting(
        "How long an executor keeps a run without renewing its lease, in seconds. It renews three times in that time.",
        6.0,
        ge=0.1,
        le=3600,
    )
    lease_grace_s: float = setting(
        "How long another executor waits after a lease has expired before it takes over the run, in seconds.",
        1.0,
        ge=0,
        le=60,
    )
    proposal_expire_s: float = setting(
        "A proposal that nobody decides on is cancelled after this many seconds, and its loop ends. 0: never.",
        0.0,
        ge=0,
        le=31_536_000,
    )
    retention_days: int = setting(
        "Remove a run this many days after its last write, unless something can still make it act: a loop, a schedule, "
        "a waiting proposal, a fork. 0: never.",
        31,
        ge=0,
        le=36_500,
    )

    audit_days: int = setting(
        "How long the store remembers who has changed what, in days. 0: for ever.", 400, ge=0, le=36_500
    )
    token_divisor: int = setting(
        "Characters per token in every estimate: tokens = ceil(characters / this).", 2, ge=1, le=16
    )

    db_connect_s: float = 10.0
    """Seconds that PostgreSQL is tried to be reached again."""
    db_lock_s: float = 10.0
    """Seconds that a write waits for another replica's lock on PostgreSQL."""
    db_poll_s: float = 3.0
    """Seconds between two looks of watchers for changes on PostgreSQL that they were not notified of."""
    heartbeat_s: float = 30.0
    """Most seconds of silence after which a watcher of the store hears a heartbeat."""
    pattern_s_max: float = 5.0
    """Seconds of work that matching the patterns of one request may take."""
    workspace_wait_s: float = 10.0
    """Seconds that a queued loop waits before it reports that no executor has its workspace."""
    stream_grace_s: float = 120.0
    """Seconds of silence after which a stream whose producer has died ends with 499."""
    sole_executor: bool = False
    """Whether every executor starts and stops with this store; then a start releases every run. SQLite only."""
    waits_for_database: bool = True
    """Whether a start waits for a PostgreSQL server that does not answer yet. A command would rather fail."""
    write_limits: WriteLimits = WriteLimits()
    """Limits of what is written."""
    fold_s: float = 1.0
    """Seconds between two looks for streamed bodies to compact."""
    schemes_refresh_s: float = 2.0
    """Seconds between two looks for schemes that other replicas registered."""
    quotas_refresh_s: float = 2.0
    """Seconds between two looks whether there are quotas."""
    search_index_s: float = 1.0
    """Seconds between two steps of the search index."""
    purge_after_s: float = 60.0
    """Seconds that the rows of a removed run stay for readers that have already started."""
    purge_every_s: float = 5.0
    """Seconds between two looks for rows of removed runs."""

    def after_load(self) -> None:
        """Check the models of the environment. Raises SettingsError."""
        vars(self)["_seeds"] = read_seeds(os.environ)

    @property
    def seeds(self) -> ModelSeeds:
        """Models of the environment, as they were when the settings were read."""
        found: ModelSeeds = vars(self)["_seeds"]
        return found

    @property
    def more(self) -> Mapping[str, str]:
        """The variables of models."""
        models = {f"{MODEL_PREFIX}{alias}": name for alias, name in self.seeds.vendor_models.items()}
        return models | {f"{CONTEXT_PREFIX}{alias}": str(size) for alias, size in self.seeds.context_lengths.items()}

    @property
    def rules_file(self) -> Path | None:
        """The file with the approval rules of the deployment; None: there is none."""
        if self.rules:
            return Path(self.rules).expanduser()
        return file if (file := self.home / "rules.toml").exists() else None

    @property
    def is_on_postgresql(self) -> bool:
        """Whether `db` is a URL."""
        return "://" in self.db

    @property
    def database_file(self) -> Path:
        return Path(self.db) if self.db else self.home / "turnwright.db"


def checked_url(url: str) -> str:
    """The URL of a PostgreSQL database. Raises ValueError, with nothing of the URL in it: it may hold a password."""
    kind, _, rest = url.partition("://")
    if kind not in POSTGRESQL_SCHEMES:
        raise ValueError(f"must be a path, or a URL that begins with {POSTGRESQL_SCHEMES[0]}://")
    try:
        parts = urlsplit(f"postgresql://{rest}")
        user, _, hosts = parts.netloc.rpartition("@")
        # Several servers may be named; the primary of them is taken.
        _ = [urlsplit(f"//{host}").port for host in hosts.split(",")]
    except ValueError:
        raise ValueError("is not a URL: host and port after the @ cannot be read") from None
    if "@" in user or "@" in parts.path or user.count(":") > 1:
        raise ValueError("write @, / and : inside a user name or password as %40, %2F and %3A")
    return url


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
            wrong.append(f"{variable}: {message_of(error)}")
    if wrong:
        raise SettingsError("\n".join(wrong))
    return ModelSeeds(vendor_models, context_lengths)


def _tokens(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= CONTEXT_LENGTH_MAX):
        raise ValueError(f"must be a number of tokens from 1 to {CONTEXT_LENGTH_MAX}; it is {text!r}")
    return int(text)
