"""What the executor adds to ModelService: who may change models, and of which vendors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import MethodDescriptor

from turnwright_executor.ports.vendors import CheckVendor
from turnwright_kit.auth import check_deployment
from turnwright_kit.peer import Around, Peer, UnaryHandler, rpc_of


def around_models(store: Peer, check_vendor: CheckVendor, *, is_open: bool) -> Mapping[str, Around]:
    """For the methods that change models, which the whole deployment shares and pays for.

    `is_open`: derived tokens may, too. The store, which knows no such setting, is called in the executor's own name.
    """

    def change(method: MethodDescriptor, _inner: UnaryHandler) -> UnaryHandler:
        rpc = rpc_of(store.channel, method)

        async def answer(request: Any, _context: Any) -> Any:
            if not is_open:
                check_deployment(method.name, "TURNWRIGHT_CLIENT_MODELS=true")
            if method.name == "SetModel":
                await check_vendor(request.model.vendor_model, "model.vendor_model")
            return await store.call(rpc, request)

        return answer

    return {"SetModel": change, "DeleteModel": change}
