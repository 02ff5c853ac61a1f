"""Composition root of the store: the only module that names its edges."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from functools import partial
from typing import Final

from msgspec.structs import replace
from turnwright.store.v1 import store_service_pb2
from turnwright_values.store import Durability
from turnwright_values.types import Tier

from turnwright_core.wire.owner_calls import OWNER_CALLS
from turnwright_kit import telemetry
from turnwright_kit.home import ensure_home
from turnwright_kit.identity.policy import Policy
from turnwright_kit.service import Service
from turnwright_store.app.agent_ends import agent_ends
from turnwright_store.app.audit import audit_cleanup
from turnwright_store.app.compaction import compaction
from turnwright_store.app.gauges import BacklogGauges
from turnwright_store.app.idempotency import idempotency_cleanup
from turnwright_store.app.leases import release_all, unclaimable_loops
from turnwright_store.app.maintenance import Chore, Maintenance
from turnwright_store.app.open_store import check_identity, open_store, rules_of
from turnwright_store.app.proposals import proposal_expiry
from turnwright_store.app.quotas import quotas_refresh
from turnwright_store.app.retention import retention
from turnwright_store.app.schedules import scheduling
from turnwright_store.app.search import indexing
from turnwright_store.app.store_rules import schemes_refresh
from turnwright_store.app.streams import orphaned_streams
from turnwright_store.app.tokens import tokens_cleanup
from turnwright_store.app.watch_policy import follow_policy, renew_policy
from turnwright_store.app.webhooks import webhooks_cleanup
from turnwright_store.config import StoreSettings
from turnwright_store.domain.locks import GLOBAL_LOCK, REGISTRY_LOCK
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.ports import Database, OwnedDatabase
from turnwright_store.rpc.calls import StoreBackend as StoreService
from turnwright_store.rpc.store_servicer import register
from turnwright_store.sql.grants import read_policy

QUEUE_MAX: Final = 4096
"""Requests that wait for the writer, and those that wait for a reader, before more are refused."""

BATCH_MAX: Final = 256
"""Writes that share a transaction: more would not make any of them cheaper, and the last would wait longer."""

IDEMPOTENCY_DAYS: Final = 7
"""Days that the answer to a request id is kept: no client repeats a call after so long."""

GRPC_NAME: Final[str] = store_service_pb2.DESCRIPTOR.services_by_name["StoreService"].full_name

CONNECTION_CALLS_MAX: Final = 10_000
"""Calls under way on one connection: an executor has one for each run that it shows to somebody."""

CHECK_EVERY_S: Final = 24 * 3600.0
"""Seconds after which all of a database's file is read again, to find damage before a request does."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def build(settings: StoreSettings, secret: str) -> Service:
    """The store, ready to be served. Starting it raises SettingsError, and OSError for a database it cannot have."""
    database = _database(settings)
    maintenance = Maintenance()
    policy = Policy(_now_ms)
    known = (secret, *settings.secrets_accepted)
    store = StoreService(database, _now_ms, policy, known)
    following: list[asyncio.Task[None]] = []
    gauges: list[BacklogGauges] = []

    async def start() -> None:
        if not settings.is_on_postgresql:
            ensure_home(settings.database_file.parent)
        async with contextlib.AsyncExitStack() as stack:
            await database.start()
            stack.push_async_callback(database.close)
            store.opened = replace(await _open(database, settings), policy=policy)
            policy.reads = partial(renew_policy, database, policy)
            policy.replace(await database.read(read_policy))
            following.append(asyncio.create_task(follow_policy(database, policy)))
            maintenance.start([*_chores(store, settings), Chore("check", CHECK_EVERY_S, check)])
            if telemetry.is_on():
                gauges.append(BacklogGauges(database, _now_ms))
            stack.pop_all()

    async def check() -> bool:
        await database.integrity_check()
        return False

    async def close() -> None:
        for each in gauges:
            each.close()
        for task in following:
            task.cancel()
            await asyncio.wait((task,))
        await maintenance.stop()
        await database.close()

    async def drain() -> None:
        store.watches.drain()

    async def ready() -> None:
        await database.quick_check()
        await database.read(check_identity)

    # Models write entries of their own schemes; which ones is for the schemes to say.
    return Service(
        "store", GRPC_NAME, partial(register, store), floor=Tier.MODEL, policy=policy, start=start, drain=drain,
        close=close, settings=settings, ready=ready, codecs=lambda: OWNER_CALLS,
        connection_calls_max=CONNECTION_CALLS_MAX,
        refusals=store.refusals,
    )  # fmt: skip


def _database(settings: StoreSettings) -> OwnedDatabase:
    sizes = {"queue_max": QUEUE_MAX, "batch_max": BATCH_MAX, "readers": settings.db_readers}
    if not settings.is_on_postgresql:
        return SqliteDatabase(settings.database_file, _now_ms, mmap_mb=settings.db_mmap_mb, **sizes)
    from turnwright_store.edge.postgres import PostgresDatabase  # noqa: PLC0415 - loads the driver
    from turnwright_store.edge.postgres_link import Server  # noqa: PLC0415

    server = Server(
        settings.db, settings.db_connect_s, settings.db_statement_s, settings.db_lock_s, settings.waits_for_database
    )
    return PostgresDatabase(server, poll_s=settings.db_poll_s, **sizes)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _chores(store: StoreService, settings: StoreSettings) -> list[Chore]:
    """What is done again and again while the store runs."""
    expiring = (
        [proposal_expiry(store.database, lambda: store.rules, _ms(settings.proposal_expire_s))]
        if settings.proposal_expire_s
        else []
    )
    auditing = [audit_cleanup(store.database, settings.audit_days)] if settings.audit_days else []
    return [
        *expiring,
        *auditing,
        compaction(store.database, settings.fold_s),
        idempotency_cleanup(store.database, IDEMPOTENCY_DAYS),
        *retention(store.database, settings.retention_days, settings.purge_after_s, settings.purge_every_s),
        schemes_refresh(store.database, store, settings.schemes_refresh_s),
        tokens_cleanup(store.database),
        webhooks_cleanup(store.database),
        quotas_refresh(store.database, store, settings.quotas_refresh_s),
        indexing(store.database, settings.search_index_s),
        unclaimable_loops(store.database, _ms(settings.workspace_wait_s), _ms(settings.lease_grace_s)),
        orphaned_streams(store.database, lambda: store.rules, _ms(settings.stream_grace_s)),
        scheduling(store.database, lambda: store.rules),
        agent_ends(store.database, lambda: store.rules),
    ]


async def _open(database: Database, settings: StoreSettings) -> StoreRules:
    opened = await database.write(
        partial(open_store, new_incarnation=lambda: secrets.token_hex(8), seeds=settings.seeds),
        Durability.FULL,
        {REGISTRY_LOCK, GLOBAL_LOCK},
    )
    # A database that others may use beside this store is never the executors' of one process alone.
    if settings.sole_executor and not settings.is_on_postgresql:
        await database.write(release_all, Durability.NORMAL, {REGISTRY_LOCK})
    return rules_of(opened, settings)
