"""The calls of a client by which a deployment and its projects are administrated: the audit, quotas and webhooks."""

from __future__ import annotations

from datetime import datetime

from turnwright.audits.v1 import audit_service_pb2, audit_service_pb2_grpc
from turnwright.catalogues.v1 import catalogue_service_pb2, catalogue_service_pb2_grpc
from turnwright.quotas.v1 import quota_service_pb2, quota_service_pb2_grpc
from turnwright.webhooks.v1 import webhook_service_pb2, webhook_service_pb2_grpc

from turnwright_client.retrying import RetryingPeer


class AdministrationCalls:
    """Base of the client: an empty `project` is the deployment. Every method raises TurnwrightError."""

    _peer: RetryingPeer
    _audits: audit_service_pb2_grpc.AuditServiceAsyncStub
    _quotas: quota_service_pb2_grpc.QuotaServiceAsyncStub
    _catalogues: catalogue_service_pb2_grpc.CatalogueServiceAsyncStub
    _webhooks: webhook_service_pb2_grpc.WebhookServiceAsyncStub

    async def list_audit(
        self, project: str, *, since: datetime | None = None, refused: bool = False, most: int = 100
    ) -> list[audit_service_pb2.AuditRow]:
        """Who has changed what, the latest first; `refused`: who was refused what, in its place. `most` 0: all."""
        size = min(most, 1000) or 1000
        request = audit_service_pb2.ListAuditRequest(project=project, refused=refused, page_size=size)
        if since:
            request.since.FromDatetime(since)
        rows: list[audit_service_pb2.AuditRow] = []
        while not most or len(rows) < most:
            page = await self._peer.call(self._audits.ListAudit, request)
            rows += page.rows
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        return rows[: most or None]

    async def set_quota(
        self, project: str, quota: quota_service_pb2.Quota, *, request_id: str = ""
    ) -> quota_service_pb2.Quota:
        request = quota_service_pb2.SetQuotaRequest(project=project, quota=quota, request_id=request_id)
        return (await self._peer.call(self._quotas.SetQuota, request)).quota

    async def delete_quota(
        self, project: str, subject: str, metric: quota_service_pb2.QuotaMetric.ValueType, *, request_id: str = ""
    ) -> None:
        request = quota_service_pb2.DeleteQuotaRequest(
            project=project, subject=subject, metric=metric, request_id=request_id
        )
        await self._peer.call(self._quotas.DeleteQuota, request)

    async def list_quotas(self, project: str) -> list[quota_service_pb2.Quota]:
        """The quotas with what was used of them, by subject and metric."""
        request = quota_service_pb2.ListQuotasRequest(project=project)
        return list((await self._peer.call(self._quotas.ListQuotas, request)).quotas)

    async def set_webhook(
        self, project: str, webhook: webhook_service_pb2.Webhook, *, request_id: str = ""
    ) -> tuple[webhook_service_pb2.Webhook, str]:
        """Set a webhook; with the secret by which its server verifies what it is sent."""
        request = webhook_service_pb2.SetWebhookRequest(project=project, webhook=webhook, request_id=request_id)
        answer = await self._peer.call(self._webhooks.SetWebhook, request)
        return answer.webhook, answer.secret

    async def add_tool_server(
        self, project: str, server: catalogue_service_pb2.ToolServer, *, request_id: str = ""
    ) -> catalogue_service_pb2.ToolServer:
        """Register a server of tools for a project, or for all (an empty name)."""
        request = catalogue_service_pb2.AddToolServerRequest(project=project, server=server, request_id=request_id)
        return (await self._peer.call(self._catalogues.AddToolServer, request)).server

    async def remove_tool_server(self, project: str, name: str, *, request_id: str = "") -> None:
        request = catalogue_service_pb2.RemoveToolServerRequest(project=project, name=name, request_id=request_id)
        await self._peer.call(self._catalogues.RemoveToolServer, request)

    async def list_tool_servers(self, project: str) -> list[catalogue_service_pb2.ToolServer]:
        request = catalogue_service_pb2.ListToolServersRequest(project=project)
        return list((await self._peer.call(self._catalogues.ListToolServers, request)).servers)

    async def delete_webhook(self, project: str, name: str, *, request_id: str = "") -> None:
        request = webhook_service_pb2.DeleteWebhookRequest(project=project, name=name, request_id=request_id)
        await self._peer.call(self._webhooks.DeleteWebhook, request)

    async def list_webhooks(self, project: str) -> list[webhook_service_pb2.Webhook]:
        request = webhook_service_pb2.ListWebhooksRequest(project=project)
        return list((await self._peer.call(self._webhooks.ListWebhooks, request)).webhooks)

    async def list_deliveries(
        self,
        project: str,
        *,
        webhook: str = "",
        state: webhook_service_pb2.DeliveryState.ValueType = webhook_service_pb2.DELIVERY_STATE_UNSPECIFIED,
        most: int = 100,
    ) -> list[webhook_service_pb2.Delivery]:
        """What webhooks are told, the latest first; `most` is 1 to 1000."""
        request = webhook_service_pb2.ListDeliveriesRequest(
            project=project, webhook=webhook, state=state, page_size=most
        )
        return list((await self._peer.call(self._webhooks.ListDeliveries, request)).deliveries)

    async def retry_delivery(
        self, project: str, delivery_id: str, *, request_id: str = ""
    ) -> webhook_service_pb2.Delivery:
        request = webhook_service_pb2.RetryDeliveryRequest(
            project=project, delivery_id=delivery_id, request_id=request_id
        )
        return (await self._peer.call(self._webhooks.RetryDelivery, request)).delivery
