"""Composition root of the store: the only module that names its edges."""

from __future__ import annotations

import contextlib
import secrets
import time
from functools import partial
from typing import Final

import grpc
from turnwright.store.v1 import store_service_pb2, store_service_pb2_grpc

from turnwright_core.entries import Tier
from turnwright_core.kit.home import ensure_home
from turnwright_core.kit.server import Service
from turnwright_store.app.changes import Watches
from turnwright_store.app.maintenance import Chore, Maintenance
from turnwright_store.app.opening import open_store
from turnwright_store.config import CONTEXT_PREFIX, StoreSettings
from turnwright_store.domain.basis import Basis
from turnwright_store.domain.locks import GLOBAL_LOCK, REGISTRY_LOCK
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.ports import Durability
from turnwright_store.rpc.calls import Service as StoreService
from turnwright_store.rpc.store_servicer import StoreServicer

GRPC_NAME: Final[str] = store_service_pb2.DESCRIPTOR.services_by_name["StoreService"].full_name


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def build(settings: StoreSettings, _secret: str) -> Service:
    """The store, ready to be served. Starting it raises DatabaseInUseError, SchemaTooNewError, SettingsError."""
    database = SqliteDatabase(
        settings.database_file,
        _now_ms,
        queue_max=settings.store_queue_max,
        batch_max=settings.store_batch_max,
        readers=settings.store_readers,
    )
    watches = Watches()
    maintenance = Maintenance()
    store = StoreService(database, watches, time.monotonic, _now_ms)

    async def start() -> None:
        ensure_home(settings.database_file.parent)
        async with contextlib.AsyncExitStack() as stack:
            await database.start()
            stack.push_async_callback(database.close)
            store.opened = await _open(database, settings)
            maintenance.start(_chores(store, settings))
            stack.pop_all()

    async def close() -> None:
        await maintenance.stop()
        await database.close()

    async def drain() -> None:
        watches.drain()

    def register(server: grpc.aio.Server) -> None:
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(StoreServicer(store), server)

    # Models write entries of their own schemes; which ones is for the schemes to say.
    return Service("store", GRPC_NAME, register, floor=Tier.MODEL, start=start, drain=drain, close=close)


def _chores(_store: StoreService, _settings: StoreSettings) -> list[Chore]:
    """What is done again and again while the store runs."""
    return []


async def _open(database: SqliteDatabase, settings: StoreSettings) -> Basis:
    opened = await database.write(
        partial(
            open_store,
            new_incarnation=lambda: secrets.token_hex(8),
            vendor_models=settings.seeds.vendor_models,
            context_lengths=settings.seeds.context_lengths,
            context_prefix=CONTEXT_PREFIX,
            idempotency_days=settings.idempotency_days,
        ),
        Durability.FULL,
        {REGISTRY_LOCK, GLOBAL_LOCK},
    )
    return Basis(
        incarnation=opened.incarnation,
        schemes=opened.schemes,
        global_scope=opened.global_scope,
        loops_queued_max=settings.loops_queued_max,
        heartbeat_s=settings.heartbeat_s,
        pattern_s_max=settings.pattern_s_max,
    )
