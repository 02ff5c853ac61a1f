"""Sends what webhooks are told: claims it of the store once it is due, posts it, and says how that went.

Any executor sends for any project. One that dies while it sends has said nothing, so that another one sends it again.
Source: docs/adr/0076.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from turnwright.store.v1 import delivery_pb2 as pb
from turnwright.store.v1 import store_service_pb2_grpc

from turnwright_core.errors import TurnwrightError
from turnwright_executor.tools.ports import WebError
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Peer

CLAIMED_MAX: Final = 16
"""Deliveries that are sent at once."""

LOOK_EVERY_S: Final = 30.0
"""Seconds between two looks, unless the store says that something is due: an executor that is busy asks for no work."""

LAST_S: Final = 15.0
"""Seconds that what is due may take when the executor stops."""

PostsBody = Callable[[str, str, Mapping[str, str]], Awaitable[int]]
"""Posts a body with headers to a URL; the status of the answer. Raises WebError."""

_log = get_logger("deliveries")


class Deliveries:
    """One task that sends. `due` is set when something is."""

    def __init__(self, store: Peer, due: asyncio.Event, post: PostsBody) -> None:
        self._store, self._due, self._post = store, due, post
        self._rows: store_service_pb2_grpc.StoreServiceAsyncStub = store_service_pb2_grpc.StoreServiceStub(
            store.channel
        )
        self._task: asyncio.Task[None] | None = None
        self._is_sending = self._is_stopping = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="deliveries")

    async def stop(self) -> None:
        """Stop, once what is known to be due has been sent: nobody may come after a single command."""
        self._is_stopping = True
        if self._task is None:
            return
        if self._due.is_set() or self._is_sending:
            await asyncio.wait((self._task,), timeout=LAST_S)
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while not self._is_stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._due.wait()
            self._is_sending = True
            try:
                await self._send_due()
            except TurnwrightError as error:
                _log.warning("deliveries_failed", reason=error.reason.name, detail=error.message)
            except Exception as error:  # noqa: BLE001 - one that cannot be sent keeps no other waiting
                _log.error("deliveries_crashed", exc_info=error)
            self._is_sending = False

    async def _send_due(self) -> None:
        """Send until nothing is due. What has been sent makes room for the next: a slow server holds up no other."""
        under_way: set[asyncio.Task[Any]] = set()
        try:
            while True:
                # Before the store is asked: what becomes due meanwhile may not be in its answer.
                self._due.clear()
                if free := CLAIMED_MAX - len(under_way):
                    request = pb.ClaimDeliveriesRequest(limit=free)
                    claimed = (await self._store.call(self._rows.ClaimDeliveries, request)).deliveries
                    under_way |= {asyncio.create_task(self._send(one), name="delivery") for one in claimed}
                if not under_way:
                    return
                woken: asyncio.Task[Any] = asyncio.create_task(self._due.wait(), name="due")
                done, _ = await asyncio.wait({woken, *under_way}, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                under_way -= done
        except TurnwrightError:
            if under_way:
                await asyncio.wait(under_way)
            raise
        finally:
            for task in under_way:
                task.cancel()
            if under_way:
                await asyncio.wait(under_way)

    async def _send(self, one: pb.ClaimedDelivery) -> None:
        status, error = 0, ""
        try:
            status = await self._post(one.url, one.body, one.headers)
            if not 200 <= status < 300:
                error = f"The server answered HTTP {status}."
        except WebError as failed:
            error = str(failed)
        request = pb.EndDeliveryRequest(
            delivery_id=one.delivery_id, attempt=one.attempt, http_status=status, error=error
        )
        with suppress(TurnwrightError):  # it is due again once its claim has ended
            await self._store.call(self._rows.EndDelivery, request)
