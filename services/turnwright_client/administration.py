"""The calls of a client that administrate a deployment and its projects: grants, tokens, audit, quotas, webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Final

from turnwright.audits.v1 import audit_service_pb2, audit_service_pb2_grpc
from turnwright.catalogues.v1 import catalogue_service_pb2, catalogue_service_pb2_grpc
from turnwright.executor.v1 import executor_service_pb2_grpc, tools_pb2
from turnwright.grants.v1 import grant_service_pb2, grant_service_pb2_grpc
from turnwright.quotas.v1 import quota_service_pb2, quota_service_pb2_grpc
from turnwright.tokens.v1 import token_service_pb2, token_service_pb2_grpc
from turnwright.types.v1 import access_pb2, grant_pb2, token_pb2
from turnwright.webhooks.v1 import webhook_service_pb2, webhook_service_pb2_grpc

from turnwright_client.retrying import RetryingPeer
from turnwright_core.limits import PAGE_SIZE_MAX
from turnwright_core.wire.times import time_to_pb

LOGIN_S: Final = 60.0
"""Seconds that a step of a login may take: servers of others answer in them."""


class AdministrationCalls:
    """Base of the client: an empty `project` is the deployment. Every method raises TurnwrightError."""

    _peer: RetryingPeer
    _stub: executor_service_pb2_grpc.ExecutorServiceAsyncStub
    _audits: audit_service_pb2_grpc.AuditServiceAsyncStub
    _quotas: quota_service_pb2_grpc.QuotaServiceAsyncStub
    _catalogues: catalogue_service_pb2_grpc.CatalogueServiceAsyncStub
    _grants: grant_service_pb2_grpc.GrantServiceAsyncStub
    _tokens: token_service_pb2_grpc.TokenServiceAsyncStub
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

    async def begin_tool_login(
        self, project: str, server: str, redirect: str, *, client_id: str = "", client_secret: str = ""
    ) -> tuple[str, str]:
        """Begin a login at an MCP server; the id of the login, and the address that a person opens."""
        request = tools_pb2.BeginToolLoginRequest(
            project=project, server=server, redirect=redirect, client_id=client_id, client_secret=client_secret
        )
        answer = await self._peer.call(self._stub.BeginToolLogin, request, timeout_s=LOGIN_S)
        return answer.login, answer.address

    async def complete_tool_login(self, project: str, server: str, login: str, callback: str) -> None:
        """Complete a login with the address that the browser was sent to."""
        request = tools_pb2.CompleteToolLoginRequest(project=project, server=server, login=login, callback=callback)
        await self._peer.call(self._stub.CompleteToolLogin, request, timeout_s=LOGIN_S)

    async def end_tool_login(self, project: str, server: str) -> None:
        """End a login at an MCP server: its tokens are revoked and deleted."""
        request = tools_pb2.EndToolLoginRequest(project=project, server=server)
        await self._peer.call(self._stub.EndToolLogin, request, timeout_s=LOGIN_S)

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

    async def set_grant(
        self,
        project: str,
        subject: str,
        role: grant_pb2.GrantRole.ValueType,
        without: Sequence[access_pb2.Right.ValueType] = (),
        until_ms: int = 0,
    ) -> grant_pb2.Grant:
        """Give a subject (`user:NAME`, `group:NAME` or `*`) a role in a project, or in the deployment if that is empty.

        It holds at this executor when the call returns. `until_ms` is in milliseconds since 1970; 0: for ever.
        """
        ends = time_to_pb(until_ms) if until_ms else None
        grant = grant_pb2.Grant(subject=subject, role=role, without=without, until_time=ends)
        request = grant_service_pb2.SetGrantRequest(project=project, grant=grant)
        return (await self._peer.call(self._grants.SetGrant, request)).grant

    async def delete_grant(self, project: str, subject: str) -> None:
        await self._peer.call(
            self._grants.DeleteGrant, grant_service_pb2.DeleteGrantRequest(project=project, subject=subject)
        )

    def list_grants(self, project: str) -> AsyncIterator[grant_pb2.Grant]:
        """The grants in a project, or in the deployment, by subject."""
        request = grant_service_pb2.ListGrantsRequest(project=project, page_size=PAGE_SIZE_MAX)
        return self._peer.items(self._grants.ListGrants, request, lambda page: page.grants)

    async def identity(self, *, with_projects: bool = True) -> grant_service_pb2.GetIdentityResponse:
        """Who the caller is, and what it may do in each project; without, in one or none of them."""
        request, found = (
            grant_service_pb2.GetIdentityRequest(page_size=PAGE_SIZE_MAX if with_projects else 1),
            grant_service_pb2.GetIdentityResponse(),
        )
        while True:
            page = await self._peer.call(self._grants.GetIdentity, request)
            projects = [*found.projects, *page.projects]
            found.CopyFrom(page)
            del found.projects[:]
            found.projects.extend(projects)
            if not (with_projects and page.next_page_token):
                return found
            request.page_token = page.next_page_token

    async def create_token(self, wanted: token_service_pb2.CreateTokenRequest) -> str:
        """A token for somebody, which the store remembers. Each call makes another one."""
        return (await self._peer.call(self._tokens.CreateToken, wanted)).bearer

    def list_tokens(self) -> AsyncIterator[token_pb2.Token]:
        """The caller's tokens, or all, that have not expired."""
        request = token_service_pb2.ListTokensRequest(page_size=PAGE_SIZE_MAX)
        return self._peer.items(self._tokens.ListTokens, request, lambda page: page.tokens)

    async def revoke_token(self, token_id: str) -> token_pb2.Token:
        request = token_service_pb2.RevokeTokenRequest(token_id=token_id)
        return (await self._peer.call(self._tokens.RevokeToken, request)).token
