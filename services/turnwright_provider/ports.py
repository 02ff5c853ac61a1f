"""What the provider needs from outside: vendors, and for those on the network a transport.

Source: house 2.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from turnwright_provider.domain.model_call import ModelCall, VendorEvent
from turnwright_provider.domain.model_info import UNKNOWN, ModelInfo


class VendorState(Struct, frozen=True):
    """Whether a vendor can be called. `endpoint` holds no secret; `settings` are those that `problem` is about.

    `is_unset` says that nobody has set it up; `key_setting` names where its key is set, for people.
    """

    endpoint: str
    problem: str = ""
    settings: tuple[str, ...] = ()
    is_unset: bool = False
    key_setting: str = ""
    tells_cost: bool = True
    """Whether it may say what a call cost."""


class ModelCheck(Struct, frozen=True):
    """What a vendor says of one model: what is wrong, empty where nothing is, and what is known of it."""

    problem: str = ""
    info: ModelInfo = UNKNOWN


class Vendor(Protocol):
    """What answers calls of one name's models. A file in `vendors/` each, or a plugin's."""

    def describe(self) -> VendorState:
        """Whether it is configured, and where it is reached. No network."""

    def stream(self, call: ModelCall, attempt: int) -> AsyncGenerator[VendorEvent, None]:
        """One try (1-based) at a call: deltas, then exactly one Finish. Raises VendorError."""

    async def check(self, models: Sequence[str]) -> Sequence[ModelCheck]:
        """What is wrong with each model, and what is known of it. Costs no tokens."""


class HttpRequest(Struct, frozen=True):
    """One request."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""

    def __repr__(self) -> str:
        """Without headers: they hold secrets."""
        return f"HttpRequest({self.method!r}, {self.url!r}, body={self.body!r})"


class HttpReply(Protocol):
    """The answer to a request, its body not read yet."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers, names in lower case."""

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises VendorError when it is cut, silent or too long."""


class Transport(Protocol):
    """Sends HTTP requests."""

    def open(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpReply]:
        """The answer once its headers are there; leaving closes it. Raises VendorError when there is none."""
