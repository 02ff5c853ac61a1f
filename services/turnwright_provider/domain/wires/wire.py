"""What a wire has to say: how a call becomes a request, and how the answer becomes a reply."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, Protocol

from msgspec import Struct, field

from turnwright_core.chat.deltas import Delta
from turnwright_provider.domain.model_call import Dropped, ModelCall, VendorEvent
from turnwright_provider.domain.sse import SseEvent


class Framing(Enum):
    """How the events of a stream are told apart."""

    SSE = "server-sent events"
    LINES = "a JSON object on each line"


class WireRequest(Struct, frozen=True):
    """A request below the base URL, and what of the call is not in it."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[Dropped, ...] = ()


class ReplyFold(Protocol):
    """Folds one answer. Raises VendorError for an error that the server put into it."""

    is_done: bool
    """Whether the server said that nothing follows."""

    @property
    def is_ended(self) -> bool:
        """Whether the reply has come to its end, whatever may follow."""

    @property
    def has_begun(self) -> bool:
        """Whether any event was read."""

    @property
    def progress(self) -> int:
        """A figure that grows with the reply, and with nothing else that a server sends."""

    def event(self, event: SseEvent) -> list[Delta]:
        """The deltas of one event; of a line where the wire has lines."""

    def whole(self, body: Any) -> list[Delta]:
        """The deltas of a reply that came as one JSON body. Raises VendorError when it is none."""

    def flush(self) -> list[Delta]:
        """What was held back: to be told also when the stream breaks off."""

    def close(self) -> list[VendorEvent]:
        """The last deltas and the end. Raises VendorError for a stream that was empty or was cut."""


class Wire(Protocol):
    """One vendor's interface."""

    name: str
    framing: Framing
    models_path: str
    """Where the models are listed, below the base URL."""
    usual_path: str
    """How most base URLs of such servers end."""
    names_in_errors: Mapping[str, tuple[str, ...]]
    """What of a request may give way -> the words by one of which a refusal names it. Those that come first count."""

    def headers(self, api_key: str) -> Mapping[str, str]:
        """What every request carries: the key, and the version of the interface."""

    def request(self, call: ModelCall, without: AbstractSet[str]) -> WireRequest:
        """The request of a call, `without` the fields that the server refused."""

    def removable(self, call: ModelCall) -> AbstractSet[str]:
        """Those of `ways_out` that are in the request of a call."""

    def fold(self) -> ReplyFold:
        """What folds the answer to one request."""
