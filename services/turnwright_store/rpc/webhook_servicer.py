"""Rpcs of WebhookService."""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlalchemy import Connection
from turnwright.webhooks.v1 import webhook_service_pb2 as pb
from turnwright.webhooks.v1 import webhook_service_pb2_grpc

from turnwright_kit.identity.caller import Caller
from turnwright_store.app import webhooks
from turnwright_store.domain.locks import WEBHOOKS_LOCK
from turnwright_store.domain.webhooks import shown_secret
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, Handler, mutation, query


def _locks(_request: object) -> set[str]:
    return {WEBHOOKS_LOCK}


def _with_secret(handle: Handler[Any, pb.SetWebhookRequest]) -> Handler[Any, pb.SetWebhookRequest]:
    """The answer with the secret, which is not stored with the answer to a request that may be repeated."""

    async def answer(self: WebhookServicer, request: pb.SetWebhookRequest, context: Any) -> pb.SetWebhookResponse:
        made: pb.SetWebhookResponse = await handle(self, request, context)
        find = partial(webhooks.salt_of, project=request.project, name=made.webhook.name)
        # An answer that is repeated may be of a webhook that was deleted since.
        if salt := await self._database.read(find):
            made.secret = shown_secret(self._service.secrets[0], salt)
        return made

    return answer


class WebhookServicer(Calls, webhook_service_pb2_grpc.WebhookServiceServicer):
    """Serves turnwright.webhooks.v1.WebhookService."""

    @_with_secret
    @mutation(locks=_locks)
    def SetWebhook(self, request: pb.SetWebhookRequest, tx: Transaction, caller: Caller) -> Fields:
        return {"webhook": webhooks.set_webhook(tx, caller, request.project, request.webhook)}

    @mutation(locks=_locks)
    def DeleteWebhook(self, request: pb.DeleteWebhookRequest, tx: Transaction, _caller: Caller) -> Fields:
        webhooks.delete_webhook(tx, request.project, request.name)
        return {}

    @query
    def ListWebhooks(self, request: pb.ListWebhooksRequest, connection: Connection) -> Fields:
        return {"webhooks": webhooks.list_webhooks(connection, request.project)}

    @query
    def ListDeliveries(self, request: pb.ListDeliveriesRequest, connection: Connection) -> Fields:
        found, token = webhooks.list_deliveries(
            connection, request.project, request.webhook, request.state, request.page_size, request.page_token
        )
        return {"deliveries": found, "next_page_token": token}

    @mutation(locks=_locks)
    def RetryDelivery(self, request: pb.RetryDeliveryRequest, tx: Transaction, _caller: Caller) -> Fields:
        return {"delivery": webhooks.retry_delivery(tx, request.project, request.delivery_id)}
