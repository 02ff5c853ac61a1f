"""Which vendors the provider has.

They change only with its settings: it is asked again only about a vendor that it did not name before.
"""

from __future__ import annotations

from turnwright.provider.v1 import provider_service_pb2, provider_service_pb2_grpc

from turnwright_core.checks import invalid
from turnwright_core.kit.peer import Peer
from turnwright_core.suggestions import unknown_vendor


class Vendors:
    """Asks the provider."""

    def __init__(self, provider: Peer) -> None:
        self._provider = provider
        self._stub = provider_service_pb2_grpc.ProviderServiceStub(provider.channel)
        self._known: frozenset[str] = frozenset()

    async def check(self, vendor_model: str, field: str) -> None:
        """Refuse a model of a vendor that there is not; aliases, and how names are built, the store checks.

        Raises INVALID_FIELD.
        """
        vendor, slash, _ = vendor_model.partition("/")
        if not slash or vendor in self._known:
            return
        answer = await self._provider.call(self._stub.ListVendors, provider_service_pb2.ListVendorsRequest())
        self._known = frozenset(one.name for one in answer.vendors)
        if vendor not in self._known:
            raise invalid(field, unknown_vendor(vendor, self._known))
