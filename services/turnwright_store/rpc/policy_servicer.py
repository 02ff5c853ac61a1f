"""The rpcs by which services learn who may do what, and say what was done elsewhere by that."""

from __future__ import annotations

from msgspec.structs import asdict
from turnwright.store.v1 import policy_pb2 as pb
from turnwright.types.v1 import grant_pb2
from turnwright_values.types import Grant

from turnwright_core.checks import check_words
from turnwright_core.limits import NAME_CHARS_MAX
from turnwright_core.wire.codec import codec
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.watch_policy import PolicyPart, PolicyWatch, watch_policy
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, mutation, project_locks, watch
from turnwright_store.sql.registry import project_id_of

_grant_to_pb, _ = codec(Grant, grant_pb2.Grant)


class PolicyRpcs(Calls):
    """Rpcs of policy.proto."""

    def _part_to_pb(self, part: PolicyPart) -> pb.WatchPolicyResponse:
        message = pb.WatchPolicyResponse(
            version=part.version,
            grants=map(_grant_to_pb, part.grants),
            revoked_token_ids=part.revoked_token_ids,
            caller_quotas=[pb.CallerQuota(**asdict(quota)) for quota in part.caller_quotas],
            last=part.is_last,
        )
        if not part.version:
            message.heartbeat.SetInParent()
        return message

    @watch(_part_to_pb)
    async def WatchPolicy(self, request: pb.WatchPolicyRequest) -> PolicyWatch:
        return await watch_policy(self._database, request.known_version)

    @mutation(locks=project_locks)
    def RecordToolLogin(self, request: pb.RecordToolLoginRequest, tx: Transaction, _caller: Caller) -> Fields:
        check_words("server", request.server, NAME_CHARS_MAX)
        project_id_of(tx.connection, request.project)
        tx.detail.update(server=request.server)
        return {}
