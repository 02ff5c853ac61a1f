"""What the executor adds to CatalogueService: where servers may be, and that it asks again which there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from turnwright.catalogues.v1 import catalogue_service_pb2 as pb

from turnwright_kit.peer import Around, UnaryHandler


def around_catalogues(
    check: Callable[[str, pb.ToolServer], Awaitable[None]], forget: Callable[[str], None]
) -> Mapping[str, Around]:
    """For the methods that change servers. `check` raises INVALID_FIELD, `forget` is told whose have changed."""

    def change(_method: MethodDescriptor, forward: UnaryHandler) -> UnaryHandler:
        async def answer(request: Any, context: Any) -> Any:
            if isinstance(request, pb.AddToolServerRequest):
                await check(request.project, request.server)
            changed = await forward(request, context)
            forget(request.project)
            return changed

        return answer

    return {"AddToolServer": change, "RemoveToolServer": change}
