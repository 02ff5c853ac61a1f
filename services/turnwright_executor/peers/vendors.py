"""The vendors of the provider.

They change only with its settings, so the provider is asked again only about a vendor that it did not list before.
"""

from __future__ import annotations

from turnwright.provider.v1 import provider_service_pb2, provider_service_pb2_grpc

from turnwright_core.checks import invalid
from turnwright_core.suggestions import unknown_vendor
from turnwright_kit.peer import Peer


class Vendors:
    """Asks the provider for its vendors."""

    def __init__(self, provider: Peer) -> None:
        self._provider = provider
        self._stub = provider_service_pb2_grpc.ProviderServiceStub(provider.channel)
        self._known: frozenset[str] = frozenset()

    async def check(self, vendor_model: str, field: str) -> None:
        """Refuse a model of an unknown vendor; the store validates aliases and the form of names.

        Raises INVALID_FIELD.
        """
        vendor, slash, _ = vendor_model.partition("/")
        if not slash or vendor in self._known:
            return
        answer = await self._provider.call(self._stub.ListVendors, provider_service_pb2.ListVendorsRequest())
        self._known = frozenset(one.name for one in answer.vendors)
        if vendor not in self._known:
            raise invalid(field, unknown_vendor(vendor, self._known))
