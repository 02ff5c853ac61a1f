"""The registered schemes as this executor knows them: a cache, updated from the store's answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

from turnwright.schemes.v1 import scheme_service_pb2, scheme_service_pb2_grpc
from turnwright.types.v1 import scheme_pb2

from turnwright_core.schemes import BUILT_IN, Scheme
from turnwright_core.wire.schemes import registry_from_pb, scheme_from_pb, scheme_to_pb
from turnwright_kit.peer import Peer


class SchemesAnswer(Protocol):
    """An answer of the store that contains the schemes if the caller has another version."""

    @property
    def schemes(self) -> scheme_pb2.SchemeRegistry:
        """The whole registry."""

    def HasField(self, field_name: Literal["schemes"]) -> bool:  # noqa: N802 - the runtime of the stubs calls it so
        """Whether the answer contains it."""


class KnownSchemes:
    """Shared by all clients of the store. Updates cost no extra call: claims, turns and runs carry them."""

    def __init__(self) -> None:
        self._known = BUILT_IN

    @property
    def version(self) -> str:
        """The known version, sent with calls, so that their answers contain the registry only if it is newer."""
        return self._known.version

    def rules(self, name: str) -> Scheme:
        return self._known.rules(name)

    def update(self, answer: SchemesAnswer) -> None:
        """Use the schemes of an answer from now on; most answers contain none."""
        self.update_registry(answer.schemes if answer.HasField("schemes") else None)

    def update_registry(self, registry: scheme_pb2.SchemeRegistry | None) -> None:
        if registry is not None:
            self._known = registry_from_pb(registry)


async def register_schemes(peer: Peer, wanted: Iterable[Scheme]) -> None:
    """Register these schemes with the store, unless it already has them. Raises TurnwrightError."""
    schemes = scheme_service_pb2_grpc.SchemeServiceStub(peer.channel)
    listed = await peer.call(schemes.ListSchemes, scheme_service_pb2.ListSchemesRequest())
    known = {one.name: scheme_from_pb(one) for one in listed.schemes}
    for scheme in wanted:
        if known.get(scheme.name) != scheme:
            await peer.call(schemes.SetScheme, scheme_service_pb2.SetSchemeRequest(scheme=scheme_to_pb(scheme)))
