"""Composition root of a store for one process that only reads.

A database that is as this code would leave it is opened for reading alone, without its lock. Any other one is opened
by the whole store first, which migrates it, registers models of the environment, and releases runs whose owner died.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from sqlalchemy import Connection
from turnwright.store.v1 import store_service_pb2, store_service_pb2_grpc
from turnwright_values.types import Tier

from turnwright_kit.identity.policy import Policy
from turnwright_kit.lazy_servicer import LazyServicer
from turnwright_kit.service import Service
from turnwright_store.app.open_store import read_opened_store, rules_of
from turnwright_store.config import StoreSettings
from turnwright_store.edge.lock import DatabaseInUseError
from turnwright_store.edge.read_only import ReadOnlyDatabase
from turnwright_store.rpc.calls import StoreBackend
from turnwright_store.rpc.resources import register_resources
from turnwright_store.sql.leases import is_any_claimed


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def build(settings: StoreSettings, secret: str) -> Service:
    """The store. Starting it raises what the whole store raises."""
    database = ReadOnlyDatabase(settings.database_file)
    # Only holders of the secret call it: nothing is granted.
    store = StoreBackend(database, _now_ms, Policy(_now_ms))

    async def open_it(*, is_shared: bool = False) -> bool:
        """Whether there is nothing to write. `is_shared`: runs are claimed by whoever else has the database."""

        def is_abandoned(connection: Connection) -> bool:
            return settings.sole_executor and not is_shared and is_any_claimed(connection)

        if not await database.open() or await database.read(is_abandoned):
            return False
        opened = await database.read(lambda connection: read_opened_store(connection, settings.seeds))
        store.opened = rules_of(opened, settings) if opened else None
        return opened is not None

    async def start() -> None:
        if await open_it():
            return
        await database.close()
        try:
            await _prepare(settings, secret)
        except DatabaseInUseError:
            if not await open_it(is_shared=True):
                raise
        else:
            await open_it(is_shared=True)

    def register(server: Any) -> None:
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(LazyServicer(partial(_whole, store)), server)  # type: ignore[arg-type]
        register_resources(store, server)

    name = store_service_pb2.DESCRIPTOR.services_by_name["StoreService"].full_name
    return Service("store", name, register, floor=Tier.MODEL, start=start, close=database.close, settings=settings)


def _whole(store: StoreBackend) -> Any:
    from turnwright_store.rpc.store_servicer import StoreServicer  # noqa: PLC0415 - few reading commands need it

    return StoreServicer(store)


async def _prepare(settings: StoreSettings, secret: str) -> None:
    from turnwright_store.wiring import build as build_whole  # noqa: PLC0415 - only for a database that is to be written

    whole = build_whole(settings, secret)
    await whole.start()
    await whole.close()
