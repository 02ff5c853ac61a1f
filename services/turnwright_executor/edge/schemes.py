"""The registered schemes as this executor knows them: what the store's latest answer said of them."""

from __future__ import annotations

from typing import Literal, Protocol

from turnwright.types.v1 import scheme_pb2

from turnwright_core.schemes import BUILT_IN, Scheme
from turnwright_core.wire.schemes import registry_from_pb


class Telling(Protocol):
    """An answer of the store that tells what is registered, where that is something else than the caller knows."""

    @property
    def schemes(self) -> scheme_pb2.SchemeRegistry:
        """All that is registered."""
        ...

    def HasField(self, field_name: Literal["schemes"]) -> bool:  # noqa: N802 - the runtime of the stubs calls it so
        """Whether it tells anything."""
        ...


class KnownSchemes:
    """One for all that speak to the store. Learning costs no call of its own: claims, turns and runs bring it."""

    def __init__(self) -> None:
        """Know the built-in schemes."""
        self._known = BUILT_IN

    @property
    def version(self) -> str:
        """To be sent with what may bring news."""
        return self._known.version

    def rules(self, name: str) -> Scheme:
        """The rules of a scheme."""
        return self._known.rules(name)

    def learn(self, answer: Telling) -> None:
        """Go by what an answer tells from now on; most tell nothing."""
        if answer.HasField("schemes"):
            self._known = registry_from_pb(answer.schemes)
