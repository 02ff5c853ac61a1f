"""The registered schemes as this executor knows them: what the store's latest answer said of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

from turnwright.store.v1 import registry_pb2, store_service_pb2_grpc
from turnwright.types.v1 import scheme_pb2

from turnwright_core.kit.peer import Peer
from turnwright_core.schemes import BUILT_IN, Scheme
from turnwright_core.wire.schemes import registry_from_pb, scheme_from_pb, scheme_to_pb


class Telling(Protocol):
    """An answer of the store that tells what is registered, where that is something else than the caller knows."""

    @property
    def schemes(self) -> scheme_pb2.SchemeRegistry:
        """All that is registered."""

    def HasField(self, field_name: Literal["schemes"]) -> bool:  # noqa: N802 - the runtime of the stubs calls it so
        """Whether it tells anything."""


class KnownSchemes:
    """One for all that speak to the store. Learning costs no call of its own: claims, turns and runs bring it."""

    def __init__(self) -> None:
        self._known = BUILT_IN

    @property
    def version(self) -> str:
        """To be sent with what may bring news."""
        return self._known.version

    def rules(self, name: str) -> Scheme:
        return self._known.rules(name)

    def learn(self, answer: Telling) -> None:
        """Go by what an answer tells from now on; most tell nothing."""
        self.learn_registry(answer.schemes if answer.HasField("schemes") else None)

    def learn_registry(self, registry: scheme_pb2.SchemeRegistry | None) -> None:
        """Go by all that is registered; None: nothing is told."""
        if registry is not None:
            self._known = registry_from_pb(registry)


async def register_schemes(peer: Peer, wanted: Iterable[Scheme]) -> None:
    """Have the store know these schemes; what it knows already is left as it is. Raises TurnwrightError."""
    store = store_service_pb2_grpc.StoreServiceStub(peer.channel)
    listed = await peer.call(store.ListSchemes, registry_pb2.ListSchemesRequest())
    known = {one.name: scheme_from_pb(one) for one in listed.schemes}
    for scheme in wanted:
        if known.get(scheme.name) != scheme:
            await peer.call(store.PutScheme, registry_pb2.PutSchemeRequest(scheme=scheme_to_pb(scheme)))
