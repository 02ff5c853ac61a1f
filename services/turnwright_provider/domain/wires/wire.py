"""The interface of a wire: from a call to a request, and from the response to a reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from importlib import import_module
from typing import Any, ClassVar

from msgspec import Struct

from turnwright_core.runs import Reasoning
from turnwright_provider.domain.model_call import Dropped, ModelCall
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.json_fold import JsonFold
from turnwright_provider.domain.wires.reasoning_fields import ReasoningFields, by_effort


class Framing(Enum):
    """How the events of a stream are delimited."""

    SSE = "server-sent events"
    LINES = "a JSON object on each line"


class WireRequest(Struct, frozen=True):
    """A request below the base URL, and what of the call is not in it."""

    path: str
    body: bytes
    dropped: tuple[Dropped, ...] = ()


class Wire(ABC):
    """One vendor's interface."""

    name: ClassVar[str]
    framing: ClassVar[Framing] = Framing.SSE
    models_path: ClassVar[str] = "/models"
    """Where the models are listed, below the base URL."""
    usual_path: ClassVar[str] = "/v1"
    """How most base URLs of such servers end."""
    names_in_errors: ClassVar[Mapping[str, tuple[str, ...]]]
    """Fields that may be dropped -> the words by one of which a refusal names them; the first match counts."""

    def __init__(
        self,
        think_tags: ThinkTags = ThinkTags.LEADING,
        asking: ReasoningFields = by_effort,
        amount: Reasoning | None = None,
        *,
        marks: bool = False,
    ) -> None:
        """`amount` is how much is reasoned where a call does not say.

        For chat completions, `asking` are the request fields for reasoning, and `marks` says that the service supports
        cache marks; others cache automatically, if at all.
        """
        self._think_tags = think_tags
        self._asking = asking
        self._amount = amount
        self._marks = marks

    def headers(self, api_key: str) -> Mapping[str, str]:
        """Headers of every request: the key, and the version of the API."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    @abstractmethod
    def request(self, call: ModelCall, without: AbstractSet[str]) -> WireRequest:
        """The request for a call, `without` the fields that the server has refused."""

    @abstractmethod
    def fold(self) -> JsonFold:
        """A fold for the answer to one request."""

    def droppable_fields(self, call: ModelCall) -> set[str]:
        """Those of `names_in_errors` that are in the request of a call."""
        return {name for name, part in self._optional(call).items() if part}

    def _optional(self, call: ModelCall) -> Mapping[str, Any]:
        """Optional fields: the name of each, and its part of the body; empty where the call has none."""
        del call
        return {}

    def _sent(self, call: ModelCall, without: AbstractSet[str]) -> dict[str, Any]:
        """The parts of the body for all optional fields but these."""
        parts = self._optional(call).items()
        return {key: value for name, part in parts if name not in without for key, value in part.items()}


def wire_class(name: str) -> type[Wire]:
    """One of WIRES, imported with the first endpoint that uses it."""
    module = import_module(f"turnwright_provider.domain.wires.{name}")
    found: type[Wire] = getattr(module, f"{name.capitalize()}Wire")
    return found
