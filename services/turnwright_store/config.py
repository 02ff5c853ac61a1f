"""Every knob of the store, from TURNWRIGHT_* variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from turnwright_core.errors import InvalidError
from turnwright_core.kit.settings import PREFIX, Settings, SettingsError, setting
from turnwright_core.limits import ATTRIBUTES_BYTES_MAX, BODY_BYTES_MAX, PATH_CHARS_MAX, WRITES_MAX
from turnwright_core.runs import Model, check_vendor
from turnwright_core.values import frozen
from turnwright_store.domain.checks import check_model, check_name
from turnwright_store.domain.limits import APPEND_BYTES_MAX, BODIES_BYTES_MAX, RUN_ENTRIES_MAX, WriteLimits

DEFAULT_LISTEN: Final = "127.0.0.1:7441"

MODEL_PREFIX: Final = f"{PREFIX}MODEL_"
CONTEXT_PREFIX: Final = f"{PREFIX}CONTEXT_"

POSTGRESQL_SCHEMES: Final = ("postgresql", "postgresql+psycopg", "postgresql+asyncpg", "postgres")
"""How a URL of a PostgreSQL database may begin; a driver that others would use for it changes nothing."""

CONTEXT_LENGTH_MAX: Final = 2**32 - 1
"""Longest context window that the contract can say, in tokens."""


@frozen
class ModelSeeds:
    """What the environment says of models, by alias as the variables write it (RU099)."""

    vendor_models: Mapping[str, str]
    context_lengths: Mapping[str, int]


class StoreSettings(Settings):
    """What the store reads."""

    db: str = setting(
        default="",
        repr=False,
        check=lambda db: checked_url(db) if "://" in db else db,
        description="Database of the store: a file of SQLite, or a URL `postgresql://user:password@host:port/name` for "
        "replicas. Empty: the file `turnwright.db` in the home.",
    )
    db_connect_s: float = setting(
        default=10.0,
        gt=0,
        le=600,
        description="Seconds that a lost connection to PostgreSQL is tried to be made again.",
    )
    db_statement_s: float = setting(
        default=30.0,
        gt=0,
        le=3600,
        description="Seconds that one statement on PostgreSQL may take; a server silent for twice that is left.",
    )
    db_lock_s: float = setting(
        default=10.0, gt=0, le=600, description="Seconds that a write waits for another replica's on PostgreSQL."
    )
    db_poll_s: float = setting(
        default=3.0,
        gt=0,
        le=3600,
        description="Seconds after which watchers look for changes in PostgreSQL that nobody told them of.",
    )
    db_mmap_mb: int = setting(
        default=0,
        ge=0,
        le=1024 * 1024,
        description="MiB of the database file that each connection maps into memory, where SQLite allows that much; "
        "0: none. Counts for a database file only.",
    )
    store_queue_max: int = setting(
        default=4096, ge=1, le=1_000_000, description="Writes that wait for the store's writer before more are refused."
    )
    store_batch_max: int = setting(
        default=256, ge=1, le=4096, description="Writes that share one transaction of the store."
    )
    store_readers: int = setting(default=2, ge=1, le=64, description="Connections of the store that read.")
    heartbeat_s: float = setting(
        default=10.0, gt=0, le=3600, description="Seconds of silence after which a watcher is sent a heartbeat."
    )
    loops_queued_max: int = setting(default=100, ge=1, le=10_000, description="Loops that may wait in one run.")
    pattern_s_max: float = setting(
        default=5.0, gt=0, le=60, description="Seconds that matching the patterns of one request may take."
    )
    lease_s: float = setting(
        default=6.0,
        ge=0.1,
        le=3600,
        description="Seconds that an executor holds a run without a word; it renews three times in it.",
    )
    lease_grace_s: float = setting(
        default=1.0, ge=0, le=60, description="Seconds after the end of a lease before another executor gets the run."
    )
    workspace_wait_s: float = setting(
        default=10.0,
        gt=0,
        le=3600,
        description="Seconds that a queued loop waits before it says that no executor has its workspace.",
    )
    proposal_expire_s: float = setting(
        default=0.0,
        ge=0,
        le=31_536_000,
        description="Seconds after which a proposal that nobody decided is cancelled; its loop ends. 0: never.",
    )
    stream_grace_s: float = setting(
        default=120.0,
        ge=0.1,
        le=86_400,
        description="Seconds of silence after which a stream without a living producer ends with 499.",
    )
    sole_executor: bool = setting(
        default=False,
        description="Whether all executors live and end with this store, so that its start frees every run. "
        "Counts for a database file only.",
    )
    entry_body_bytes_max: int = setting(
        default=BODY_BYTES_MAX, ge=1024, le=BODY_BYTES_MAX, description="Longest body of an entry, in bytes of UTF-8."
    )
    entry_attributes_bytes_max: int = setting(
        default=ATTRIBUTES_BYTES_MAX,
        ge=1024,
        le=ATTRIBUTES_BYTES_MAX,
        description="Longest attributes of an entry, in bytes of JSON text.",
    )
    entry_path_chars_max: int = setting(
        default=PATH_CHARS_MAX, ge=64, le=PATH_CHARS_MAX, description="Longest path of an entry, in characters."
    )
    append_bytes_max: int = setting(
        default=APPEND_BYTES_MAX,
        ge=1024,
        le=APPEND_BYTES_MAX,
        description="Most that one write adds to a streaming body, in bytes of UTF-8.",
    )
    writes_max: int = setting(
        default=WRITES_MAX, ge=1, le=WRITES_MAX, description="Most entry writes in one request to the store."
    )
    write_bodies_bytes_max: int = setting(
        default=BODIES_BYTES_MAX,
        ge=BODY_BYTES_MAX,
        le=1024 * 1024 * 1024,
        description="Most bytes of stored bodies that one request copies, moves or rewrites.",
    )
    run_entries_max: int = setting(
        default=RUN_ENTRIES_MAX,
        ge=1,
        le=10_000_000,
        description="Entries that ever enter the view of one run; what the end of a loop writes is taken all the same.",
    )
    change_attempts_max: int = setting(
        default=5,
        ge=1,
        le=100,
        description="How often a change by pattern is tried when the entries change between matching and writing.",
    )
    fold_s: float = setting(
        default=1.0, gt=0, le=3600, description="Seconds between two looks for streamed bodies that can be folded."
    )
    schemes_refresh_s: float = setting(
        default=2.0,
        gt=0,
        le=60,
        description="Seconds after which the store looks again for schemes that another replica registered.",
    )
    search_index_s: float = setting(
        default=1.0, gt=0, le=3600, description="Seconds between two looks for writes that are not in the search index."
    )
    idempotency_days: int = setting(
        default=7, ge=1, le=365, description="Days after which the answer to a request id is forgotten."
    )
    retention_days: int = setting(
        default=31,
        ge=0,
        le=36_500,
        description="Days after its last write after which a run without open loops is removed. 0: never.",
    )
    purge_after_s: float = setting(
        default=60.0,
        ge=0,
        le=86_400,
        description="Seconds that the rows of a removed run stay, for readers that have begun.",
    )
    purge_every_s: float = setting(
        default=5.0, gt=0, le=3600, description="Seconds between two looks for rows of removed runs."
    )

    def loaded(self) -> None:
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
    def write_limits(self) -> WriteLimits:
        """Limits of what is written."""
        return WriteLimits(
            body_bytes_max=self.entry_body_bytes_max,
            attributes_bytes_max=self.entry_attributes_bytes_max,
            path_chars_max=self.entry_path_chars_max,
            append_bytes_max=self.append_bytes_max,
            writes_max=self.writes_max,
            run_entries_max=self.run_entries_max,
            bodies_bytes_max=self.write_bodies_bytes_max,
        )

    @property
    def is_on_postgresql(self) -> bool:
        """Whether `db` is a URL."""
        return "://" in self.db

    @property
    def database_file(self) -> Path:
        """Where the database is, if it is a file."""
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
        raise ValueError("is no URL: host and port after the @ cannot be read") from None
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
                check_vendor(environment[variable])
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
