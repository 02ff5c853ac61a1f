"""Rpcs of GrantService."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from turnwright.grants.v1 import grant_service_pb2 as pb
from turnwright.grants.v1 import grant_service_pb2_grpc
from turnwright.types.v1 import access_pb2, grant_pb2
from turnwright_values.types import Grant

from turnwright_core.wire.codec import codec
from turnwright_core.wire.times import time_to_pb
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_kit.identity.policy import rights_of
from turnwright_store.app import grants
from turnwright_store.domain.checks import page_size
from turnwright_store.domain.pages import decode_page_token, page_of
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, mutation, policy_locks, query, until_it_holds

_grant_to_pb, _grant_from_pb = codec(Grant, grant_pb2.Grant)


class GrantServicer(Calls, grant_service_pb2_grpc.GrantServiceServicer):
    """Serves turnwright.grants.v1.GrantService."""

    @until_it_holds
    @mutation(locks=policy_locks)
    def SetGrant(self, request: pb.SetGrantRequest, tx: Transaction, caller: Caller) -> Fields:
        wanted = _grant_from_pb(request.grant)
        grant, version = grants.set_grant(tx, self._service.policy, caller, request.project, wanted)
        return {"grant": _grant_to_pb(grant), "policy_version": version}

    @until_it_holds
    @mutation(locks=policy_locks)
    def DeleteGrant(self, request: pb.DeleteGrantRequest, tx: Transaction, caller: Caller) -> Fields:
        version = grants.delete_grant(tx, self._service.policy, caller, request.project, request.subject)
        return {"policy_version": version}

    @query
    def ListGrants(self, request: pb.ListGrantsRequest, connection: Connection) -> Fields:
        found, token = grants.list_grants(connection, request.project, request.page_size, request.page_token)
        return {"grants": map(_grant_to_pb, found), "next_page_token": token}

    async def GetIdentity(self, request: pb.GetIdentityRequest, _context: Any) -> pb.GetIdentityResponse:
        caller, policy = current_caller(), self._service.policy
        (after,) = decode_page_token(request.page_token, str) or ("",)
        named = sorted((name, bits) for name, bits in policy.rights_by_project(caller).items() if name > str(after))
        page, token = page_of(named, page_size(request.page_size), lambda one: one[:1])
        return pb.GetIdentityResponse(
            principal=caller.name,
            kind=caller.kind.value,
            groups=sorted(caller.groups),
            proof=caller.proof.value,
            expire_time=time_to_pb(caller.expires_ms) if caller.expires_ms else None,
            root=caller.is_root,
            deployment_rights=_rights_to_pb(policy.rights_in_deployment(caller)),
            projects=[pb.ProjectRights(project=name, rights=_rights_to_pb(bits)) for name, bits in page],
            next_page_token=token,
        )


def _rights_to_pb(bits: int) -> list[access_pb2.Right.ValueType]:
    return [access_pb2.Right.ValueType(right) for right in rights_of(bits)]
