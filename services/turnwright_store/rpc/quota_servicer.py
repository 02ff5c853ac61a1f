"""Rpcs of QuotaService."""

from __future__ import annotations

from sqlalchemy import Connection
from turnwright.quotas.v1 import quota_service_pb2 as pb
from turnwright.quotas.v1 import quota_service_pb2_grpc

from turnwright_kit.identity.caller import Caller
from turnwright_store.app import quotas
from turnwright_store.domain.locks import POLICY_LOCK, QUOTAS_LOCK
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, mutation, query
from turnwright_store.sql.leases import read_now


def _locks(_request: object) -> set[str]:
    # What a caller may have under way is told with the policy.
    return {QUOTAS_LOCK, POLICY_LOCK}


class QuotaServicer(Calls, quota_service_pb2_grpc.QuotaServiceServicer):
    """Serves turnwright.quotas.v1.QuotaService."""

    @mutation(locks=_locks)
    def SetQuota(self, request: pb.SetQuotaRequest, tx: Transaction, caller: Caller) -> Fields:
        return {"quota": quotas.set_quota(tx, caller, request.project, request.quota)}

    @mutation(locks=_locks)
    def DeleteQuota(self, request: pb.DeleteQuotaRequest, tx: Transaction, _caller: Caller) -> Fields:
        quotas.delete_quota(tx, request.project, request.subject, request.metric)
        return {}

    @query
    def ListQuotas(self, request: pb.ListQuotasRequest, connection: Connection) -> Fields:
        return {"quotas": quotas.list_quotas(connection, request.project, read_now(connection))}
