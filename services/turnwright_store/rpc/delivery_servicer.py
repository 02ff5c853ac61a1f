"""Rpcs by which executors send what webhooks are told."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from turnwright.store.v1 import delivery_pb2 as pb
from turnwright_values.store import Durability

from turnwright_store.app import webhooks
from turnwright_store.domain.locks import WEBHOOKS_LOCK
from turnwright_store.domain.webhooks import signed
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls
from turnwright_store.sql.webhooks import DueRow


class DeliveryRpcs(Calls):
    """Rpcs of delivery.proto."""

    async def ClaimDeliveries(self, request: pb.ClaimDeliveriesRequest, _context: Any) -> pb.ClaimDeliveriesResponse:
        # Who looks mostly finds none: that costs a read, and no turn of the writer.
        due = await self._database.read(partial(webhooks.list_due, limit=request.limit))
        if not due:
            return pb.ClaimDeliveriesResponse()
        work = partial(webhooks.claim_due, due=due)
        claimed = await self._database.write(work, Durability.NORMAL, {WEBHOOKS_LOCK})
        return pb.ClaimDeliveriesResponse(deliveries=[self._to_send(one) for one in claimed])

    def _to_send(self, due: DueRow) -> pb.ClaimedDelivery:
        headers = signed(self._service.secrets, due.salt, due.delivery_id, round(time.time()), due.body)
        return pb.ClaimedDelivery(
            delivery_id=due.delivery_id, attempt=due.attempts + 1, url=due.url, body=due.body, headers=headers
        )

    async def EndDelivery(self, request: pb.EndDeliveryRequest, _context: Any) -> pb.EndDeliveryResponse:
        def work(tx: Transaction) -> None:
            webhooks.end_attempt(tx, request.delivery_id, request.attempt, request.http_status, request.error)

        await self._database.write(work, Durability.NORMAL, {WEBHOOKS_LOCK})
        return pb.EndDeliveryResponse()
