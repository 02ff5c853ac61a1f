"""Rpcs of AuditService."""

from __future__ import annotations

from sqlalchemy import Connection
from turnwright.audits.v1 import audit_service_pb2 as pb
from turnwright.audits.v1 import audit_service_pb2_grpc
from turnwright.types.v1 import access_pb2
from turnwright_values.types import Right

from turnwright_core.wire.times import time_from_pb, time_to_pb
from turnwright_kit.identity.caller import current_caller
from turnwright_store.app.audit import list_audit
from turnwright_store.rpc.calls import Calls, Fields, query
from turnwright_store.sql.audit import AuditRow


class AuditServicer(Calls, audit_service_pb2_grpc.AuditServiceServicer):
    """Serves turnwright.audits.v1.AuditService."""

    @query
    def ListAudit(self, request: pb.ListAuditRequest, connection: Connection) -> Fields:
        if request.refused:
            return {"rows": self._service.refusals.rows(request.project)}
        since_ms = time_from_pb(request.since)
        found, token = list_audit(connection, request.project, since_ms, request.page_size, request.page_token)
        # Who only administrates the deployment may not read what is in a project.
        is_whole = not request.project or self._service.policy.has(current_caller(), Right.READ, request.project)
        rows = [_row_to_pb(request.project, row, is_whole=is_whole) for row in found]
        return {"rows": rows, "next_page_token": token}


def _row_to_pb(project: str, row: AuditRow, *, is_whole: bool) -> pb.AuditRow:
    run, detail = (row.run, row.detail) if is_whole else ("", "")
    return pb.AuditRow(
        time=time_to_pb(row.time_ms), principal=row.principal, kind=row.kind, proof=row.proof, token_id=row.token_id,
        by=row.by, peer=row.peer, method=row.method, project=project, run=run,
        right=access_pb2.Right.ValueType(row.right),
        request_id=row.request_id, detail_json=detail, count=1,
    )  # fmt: skip
