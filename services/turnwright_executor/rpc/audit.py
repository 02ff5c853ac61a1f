"""What the executor adds to AuditService: the calls that it has refused itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import MethodDescriptor

from turnwright_kit.peer import Around, UnaryHandler
from turnwright_kit.refusals import Refusals


def around_audit(refusals: Refusals) -> Mapping[str, Around]:
    def listing(_method: MethodDescriptor, forward: UnaryHandler) -> UnaryHandler:
        async def answer(request: Any, context: Any) -> Any:
            answered = await forward(request, context)
            if request.refused:
                rows = [*refusals.rows(request.project), *answered.rows]
                del answered.rows[:]
                answered.rows.extend(sorted(rows, key=lambda row: row.time.ToNanoseconds(), reverse=True))
            return answered

        return answer

    return {"ListAudit": listing}
