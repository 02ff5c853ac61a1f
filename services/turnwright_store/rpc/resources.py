"""The resources that the store serves, each a service in a package of its own; executors mount the same services.

A servicer is imported and made when its first call comes. Source: docs/adr/0054.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final

from turnwright.plans.v1.plan_service_pb2_grpc import add_PlanServiceServicer_to_server
from turnwright.runs.v1.run_service_pb2_grpc import add_RunServiceServicer_to_server
from turnwright.schedules.v1.schedule_service_pb2_grpc import add_ScheduleServiceServicer_to_server
from turnwright.sessions.v1.session_service_pb2_grpc import add_SessionServiceServicer_to_server
from turnwright.streams.v1.stream_service_pb2_grpc import add_StreamServiceServicer_to_server
from turnwright.turns.v1.turn_service_pb2_grpc import add_TurnServiceServicer_to_server

from turnwright_core.kit.lazy_servicer import LazyServicer
from turnwright_store.rpc.calls import StoreBackend

_ADDED: Final[dict[str, Callable[[Any, Any], None]]] = {
    "plan": add_PlanServiceServicer_to_server,
    "run": add_RunServiceServicer_to_server,
    "schedule": add_ScheduleServiceServicer_to_server,
    "session": add_SessionServiceServicer_to_server,
    "stream": add_StreamServiceServicer_to_server,
    "turn": add_TurnServiceServicer_to_server,
}
"""By resource, which names the module and the class of its servicer."""


def register_resources(store: StoreBackend, server: Any) -> None:
    for resource, add in _ADDED.items():
        add(LazyServicer(partial(_servicer, resource, store)), server)


def _servicer(resource: str, store: StoreBackend) -> Any:
    module = import_module(f"turnwright_store.rpc.{resource}_servicer")
    return getattr(module, f"{resource.title()}Servicer")(store)
