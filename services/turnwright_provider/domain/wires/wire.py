"""The interface of a wire: from a call to a request, and from the response to a reply."""

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
    """How the events of a stream are delimited."""

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
    """Whether the server has sent an end marker."""

    @property
    def is_ended(self) -> bool:
        """Whether the reply is complete, even if more follows."""

    @property
    def has_begun(self) -> bool:
        """Whether any event was read."""

    @property
    def progress(self) -> int:
        """A number that grows with the reply, and with nothing else that a server sends."""

    def event(self, event: SseEvent) -> list[Delta]:
        """The deltas of one event, or of one line if the wire is line-based."""

    def whole(self, body: Any) -> list[Delta]:
        """The deltas of a reply that is one JSON body. Raises VendorError for anything else."""

    def flush(self) -> list[Delta]:
        """What was buffered, which is delivered even if the stream breaks off."""

    def close(self) -> list[VendorEvent]:
        """The last deltas and the end. Raises VendorError if the stream was empty or was cut off."""


class Wire(Protocol):
    """One vendor's interface."""

    name: str
    framing: Framing
    models_path: str
    """Where the models are listed, below the base URL."""
    usual_path: str
    """How most base URLs of such servers end."""
    names_in_errors: Mapping[str, tuple[str, ...]]
    """Fields that may be dropped -> words for them in refusals; the first match counts."""

    def headers(self, api_key: str) -> Mapping[str, str]:
        """Headers of every request: the key, and the version of the API."""

    def request(self, call: ModelCall, without: AbstractSet[str]) -> WireRequest:
        """The request for a call, `without` the fields that the server has refused."""

    def droppable_fields(self, call: ModelCall) -> AbstractSet[str]:
        """Those of `names_in_errors` that are in the request of a call."""

    def fold(self) -> ReplyFold:
        """A fold for the answer to one request."""
