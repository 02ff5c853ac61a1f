"""Which calls may be repeated after their answer was lost: they then happen once, or it does not matter."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, Final

from google.protobuf.descriptor_pb2 import MethodOptions

_REPEATABLE: Final = (MethodOptions.NO_SIDE_EFFECTS, MethodOptions.IDEMPOTENT)


def may_be_repeated(method: str, request: object) -> bool:
    """Whether a call is idempotent: by its request id, or by the `idempotency_level` of the rpc in the protos.

    `method` is the path of the rpc, as gRPC sends it.
    """
    if getattr(request, "request_id", ""):
        return True
    service, _, name = method[1:].rpartition("/")
    package, _, kind = service.rpartition(".")
    file = re.sub(r"\B(?=[A-Z])", "_", kind).lower()
    try:
        # Only now: stubs need no descriptors of services.
        descriptor: Any = import_module(f"{package}.{file}_pb2").DESCRIPTOR
    except ImportError:
        return False
    rpc = descriptor.services_by_name[kind].methods_by_name[name]
    return rpc.GetOptions().idempotency_level in _REPEATABLE
