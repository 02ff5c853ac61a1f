"""Who may do what: grants, tokens, and who the caller is itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from turnwright.grants.v1 import grant_service_pb2 as pb
from turnwright.grants.v1 import grant_service_pb2_grpc
from turnwright.tokens.v1 import token_service_pb2, token_service_pb2_grpc
from turnwright.types.v1 import access_pb2, grant_pb2, token_pb2

from turnwright_client.retrying import RetryingPeer
from turnwright_core.limits import PAGE_SIZE_MAX
from turnwright_core.wire.times import time_to_pb


class GrantCalls:
    """Base of the client: rpcs of GrantService and TokenService. Every method raises TurnwrightError."""

    _peer: RetryingPeer
    _grants: grant_service_pb2_grpc.GrantServiceAsyncStub
    _tokens: token_service_pb2_grpc.TokenServiceAsyncStub

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
        request = pb.SetGrantRequest(project=project, grant=grant)
        return (await self._peer.call(self._grants.SetGrant, request)).grant

    async def delete_grant(self, project: str, subject: str) -> None:
        await self._peer.call(self._grants.DeleteGrant, pb.DeleteGrantRequest(project=project, subject=subject))

    def list_grants(self, project: str) -> AsyncIterator[grant_pb2.Grant]:
        """The grants in a project, or in the deployment, by subject."""
        request = pb.ListGrantsRequest(project=project, page_size=PAGE_SIZE_MAX)
        return self._peer.items(self._grants.ListGrants, request, lambda page: page.grants)

    async def identity(self) -> pb.GetIdentityResponse:
        """Who the caller is, and what it may do in each project."""
        request, found = pb.GetIdentityRequest(page_size=PAGE_SIZE_MAX), pb.GetIdentityResponse()
        while True:
            page = await self._peer.call(self._grants.GetIdentity, request)
            projects = [*found.projects, *page.projects]
            found.CopyFrom(page)
            del found.projects[:]
            found.projects.extend(projects)
            if not page.next_page_token:
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
