"""The resources of the contract, each a service in a package of its own. Source: docs/adr/0054."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from msgspec import Struct


class Resource(Struct, frozen=True):
    """A resource, by the name that its package, its service and their modules have in common."""

    name: str

    @property
    def package(self) -> str:
        return "entries" if self.name == "entry" else f"{self.name}s"

    @property
    def service_name(self) -> str:
        return f"{self.name.title()}Service"

    @property
    def messages(self) -> Any:
        return import_module(f"turnwright.{self.package}.v1.{self.name}_service_pb2")

    @property
    def service(self) -> Any:
        return self.messages.DESCRIPTOR.services_by_name[self.service_name]

    @property
    def rpcs(self) -> object:
        """The module with its stub, and with what registers its servicer."""
        return import_module(f"turnwright.{self.package}.v1.{self.name}_service_pb2_grpc")

    def stub(self, channel: object) -> object:
        return getattr(self.rpcs, f"{self.service_name}Stub")(channel)


_FOR_CLIENTS: Final = (
    "audit", "catalogue", "document", "entry", "grant", "model", "plan", "project", "proposal", "quota", "rule", "run",
    "schedule", "session", "stream", "token", "turn", "webhook",
)  # fmt: skip
FOR_CLIENTS: Final = tuple(map(Resource, _FOR_CLIENTS))
"""Those that executors mount for clients."""

RESOURCES: Final = (*FOR_CLIENTS, Resource("scheme"))
"""All, which a store serves."""
