"""Serves the resources of the contract. A servicer is imported and made when its first call comes."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from turnwright_core.wire.resources import RESOURCES, Resource
from turnwright_kit.lazy_servicer import LazyServicer
from turnwright_store.rpc.calls import StoreBackend


def register_resources(store: StoreBackend, server: Any) -> None:
    for resource in RESOURCES:
        add = getattr(resource.rpcs, f"add_{resource.service_name}Servicer_to_server")
        add(LazyServicer(partial(_servicer, resource, store)), server)


def _servicer(resource: Resource, store: StoreBackend) -> Any:
    module = import_module(f"turnwright_store.rpc.{resource.name}_servicer")
    return getattr(module, f"{resource.name.title()}Servicer")(store)
