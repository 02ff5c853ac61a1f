"""What a server has refused: whom, which method, in which project, why, and how often. Bounded, and in memory.

Refused is who has no identity that is accepted, or no right. Source: docs/adr/0068.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from turnwright_core.errors import Reason

if TYPE_CHECKING:
    from turnwright.audits.v1.audit_service_pb2 import AuditRow

    from turnwright_kit.identity.caller import Caller

KINDS_MAX: Final = 1024
"""Kinds of refusals that are counted; the one that came last longest ago gives way."""

_ALWAYS: Final = (
    Reason.UNAUTHENTICATED, Reason.TIER_FORBIDDEN, Reason.WRITER_FORBIDDEN, Reason.RIGHT_MISSING, Reason.RULE_DENIED
)  # fmt: skip


class _Refusal(Struct):
    caller: Caller | None
    peer: str
    latest_ns: int
    count: int


class Refusals:
    """The refusals of one server."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str, Reason], _Refusal] = {}

    def add(self, caller: Caller | None, peer: str, method: str, project: str, reason: Reason) -> None:
        """Count a call that has failed for this reason, if that is a refusal. Without a caller it is a stranger's."""
        # For others than the deployment itself a project that they may not know is none.
        is_hidden = reason is Reason.PROJECT_NOT_FOUND and caller is not None and not caller.is_trusted
        if reason not in _ALWAYS and not is_hidden:
            return
        # A name of nothing would let a stranger push out all others.
        project = "" if is_hidden else project
        key = (caller.name if caller else "", method, project, reason)
        before = self._found.pop(key, None)
        self._found[key] = _Refusal(caller, peer, time.time_ns(), before.count + 1 if before else 1)
        if len(self._found) > KINDS_MAX:
            del self._found[next(iter(self._found))]

    def rows(self, project: str) -> list[AuditRow]:
        """The refusals in a project, the latest first; those of all without one."""
        from turnwright.audits.v1.audit_service_pb2 import AuditRow  # noqa: PLC0415 - few servers are ever asked
        from turnwright.types.v1 import error_pb2  # noqa: PLC0415

        rows = []
        for (name, method, where, reason), one in reversed(self._found.items()):
            if project in ("", where):
                refusal = error_pb2.ErrorReason.ValueType(reason)
                row = AuditRow(
                    principal=name, peer=one.peer, method=method, project=where, refusal=refusal, count=one.count
                )
                row.time.FromNanoseconds(one.latest_ns)
                if one.caller:
                    row.kind, row.proof = one.caller.kind.value, one.caller.proof.value
                    row.token_id, row.by = one.caller.token, one.caller.by
                rows.append(row)
        return rows
