"""The resources that the store serves, each a service in a package of its own; executors mount most of them.

A servicer is imported and made when its first call comes. Source: docs/adr/0054.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any, Final

from turnwright_kit.lazy_servicer import LazyServicer
from turnwright_store.rpc.calls import StoreBackend

_RESOURCES: Final = (
    "entry", "model", "plan", "project", "proposal", "run", "schedule", "scheme", "session", "stream", "turn",
)  # fmt: skip
"""Each names its package, the module of its servicer, and their classes."""


def register_resources(store: StoreBackend, server: Any) -> None:
    for resource in _RESOURCES:
        package = "entries" if resource == "entry" else f"{resource}s"
        module = import_module(f"turnwright.{package}.v1.{resource}_service_pb2_grpc")
        add = getattr(module, f"add_{resource.title()}ServiceServicer_to_server")
        add(LazyServicer(partial(_servicer, resource, store)), server)


def _servicer(resource: str, store: StoreBackend) -> Any:
    module = import_module(f"turnwright_store.rpc.{resource}_servicer")
    return getattr(module, f"{resource.title()}Servicer")(store)
