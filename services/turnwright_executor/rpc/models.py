"""What the executor adds to ModelService: of which vendors models may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import MethodDescriptor

from turnwright_executor.ports.vendors import CheckVendor
from turnwright_kit.peer import Around, UnaryHandler


def around_models(check_vendor: CheckVendor) -> Mapping[str, Around]:
    """For the method that adds models."""

    def change(_method: MethodDescriptor, forward: UnaryHandler) -> UnaryHandler:
        async def answer(request: Any, context: Any) -> Any:
            await check_vendor(request.model.vendor_model, "model.vendor_model")
            return await forward(request, context)

        return answer

    return {"SetModel": change}
