"""The interface of a wire: from a call to a request, and from the response to a reply."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from importlib import import_module
from typing import ClassVar, Final

import msgspec
from msgspec import Raw, Struct
from turnwright_values.provider import Dropped
from turnwright_values.replies import ThinkingBlock

from turnwright_core.chat.message import Message
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_core.models import Reasoning
from turnwright_provider.domain.error_body import read_error_bytes
from turnwright_provider.domain.model_call import ModelCall, ToolSpec
from turnwright_provider.domain.presets import ReasoningFields, by_effort
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.blocks import images_of
from turnwright_provider.domain.wires.json_fold import JsonFold
from turnwright_provider.domain.wires.prepare_messages import ASSISTANT, SYSTEM, prepare_messages


def encode_body(body: JsonMapping, extra: JsonMapping) -> bytes:
    """The request body as bytes, with the extra fields."""
    return encode(with_extra(body, extra))


def encode(value: object) -> bytes:
    """JSON; a `msgspec.Raw` in it stands for what it encodes."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # msgspec refuses an unpaired surrogate; a question mark replaces it.
        return json.dumps(value, ensure_ascii=False, default=msgspec.json.decode).encode("utf-8", "replace")


def with_extra(body: JsonMapping, extra: JsonMapping) -> JsonObject:
    """The body with extra fields: objects are merged, lists are appended to, anything else is replaced."""
    return {**body, **{name: _merged(body.get(name), value) for name, value in extra.items()}}


def _merged(ours: object, theirs: object) -> object:
    if isinstance(ours, msgspec.Raw):
        ours = msgspec.json.decode(ours)
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return with_extra(ours, theirs)
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        return [*ours, *theirs]
    return theirs


_REFUSALS: Final = ("unsupported", "not support", "unknown", "unrecognized", "unexpected", "extra", "not permitted",
                    "not allowed", "unknown_parameter", "invalid", "only", "instead", "deprecated",
                    "must be explicitly", "maximum allowed")  # fmt: skip


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
    vendor: ClassVar[str]
    """Who takes no more than this, in sentences about what was dropped."""
    path: ClassVar[str]
    """Where calls are sent, below the base URL."""
    framing: ClassVar[Framing] = Framing.SSE
    models_path: ClassVar[str] = "/models"
    """Where the models are listed, below the base URL."""
    usual_path: ClassVar[str] = "/v1"
    """How most base URLs of such servers end."""
    count_path: ClassVar[str] = ""
    """Where the tokens of a call are counted; empty: nowhere."""
    counted: ClassVar[tuple[str, ...]] = ()
    """The fields of a request that are sent there."""
    names_in_errors: ClassVar[Mapping[str, tuple[str, ...]]]
    """Fields that may be dropped -> the words by one of which a refusal names them; the first match counts."""
    not_taken: ClassVar[Mapping[str, str]] = {}
    """Fields of a call that have no place in a request -> why."""
    takes_server_blocks: ClassVar[bool] = True

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

    def request(self, call: ModelCall, without: AbstractSet[str]) -> WireRequest:
        """The request for a call, `without` the fields that the server has refused."""
        body, dropped = self._prepared(call, without)
        return WireRequest(
            self._path(call), encode_body(body, call.extra), tuple(map(Dropped, dropped, dropped.values()))
        )

    def count_request(self, call: ModelCall, without: AbstractSet[str]) -> WireRequest | None:
        """The request that counts the tokens of a call; None where that cannot be asked."""
        if not self.counted:
            return None
        body = with_extra(self._prepared(call, without)[0], call.extra)
        return self._count({name: body[name] for name in self.counted if name in body}, call)

    def refused_field(
        self, status: int, answer: bytes, call: ModelCall, without: AbstractSet[str] = frozenset()
    ) -> str | None:
        """The optional field because of which a server refused a request; None for any other refusal.

        The request was sent `without` these fields.
        """
        if status not in (400, 422):
            return None
        error = read_error_bytes(answer)
        words = f"{error.param} {error.code} {error.message}".lower()
        # An error in a message is not fixed by dropping another field.
        if error.message.startswith("messages.") or not any(refusal in words for refusal in _REFUSALS):
            return None
        named = (field for field, names in self.names_in_errors.items() if any(name in words for name in names))
        sent = self.droppable_fields(call) - without
        return next((field for field in named if field in sent), None)

    @abstractmethod
    def fold(self) -> JsonFold:
        """A fold for the answer to one request."""

    def droppable_fields(self, call: ModelCall) -> set[str]:
        """Those of `names_in_errors` that are in the request of a call."""
        return {name for name, part in self._optional(call).items() if part}

    def _prepared(self, call: ModelCall, without: AbstractSet[str]) -> tuple[JsonObject, dict[str, str]]:
        """The body without the extra fields, and what was dropped: field -> reason."""
        messages, dropped = prepare_messages(call)
        dropped.update(self._left_out(messages))
        asked = call.asked if self.not_taken else ()
        dropped |= {name: why for name, why in self.not_taken.items() if name in asked}
        return self._body(call, messages, without, dropped), dropped

    @abstractmethod
    def _body(
        self, call: ModelCall, messages: Sequence[Message], without: AbstractSet[str], dropped: dict[str, str]
    ) -> JsonObject:
        """The body for prepared messages. What else cannot be sent is added to `dropped`."""

    def _tools(self, call: ModelCall, form: Hashable, encoded: Callable[[ToolSpec], JsonObject]) -> Raw:
        """The tools as a part of the body: encoded once for each list, wire and `form`, whatever follows from that."""
        return call.from_tools((self.name, form), lambda: Raw(encode([encoded(tool) for tool in call.tools])))

    def _path(self, call: ModelCall) -> str:
        del call
        return self.path

    def _count(self, body: JsonObject, call: ModelCall) -> WireRequest:
        del call
        return WireRequest(self.count_path, encode_body(body, {}))

    @abstractmethod
    def _takes(self, block: ThinkingBlock) -> bool:
        """Whether a request can carry a block of reasoning."""

    def _left_out(self, messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
        """What of the messages has no place in a request: its field, and why."""
        if any(images_of(message) for message in messages if message.role in (SYSTEM, ASSISTANT)):
            yield "images", f"{self.vendor} takes images of users and of tools only."
        if any(not self._takes(block) for message in messages for block in message.thinking):
            yield "thinking", f"{self.vendor} has no place for blocks of that type."
        if not self.takes_server_blocks and any(message.server_blocks for message in messages):
            yield "server_blocks", f"{self.vendor} has no place for it."

    def _reasoning(self, call: ModelCall) -> Reasoning | None:
        """How much the model is asked to reason; None: as its vendor likes."""
        return self._amount if call.reasoning is None else call.reasoning

    def _optional(self, call: ModelCall) -> JsonMapping:
        """Optional fields: the name of each, and its part of the body; empty where the call has none."""
        del call
        return {}

    def _sent(self, call: ModelCall, without: AbstractSet[str]) -> JsonObject:
        """The parts of the body for all optional fields but these."""
        parts = self._optional(call).items()
        return {key: value for name, part in parts if name not in without for key, value in part.items()}


def wire_class(name: str) -> type[Wire]:
    """One of WIRES, imported with the first endpoint that uses it."""
    module = import_module(f"turnwright_provider.domain.wires.{name}")
    found: type[Wire] = getattr(module, f"{name.capitalize()}Wire")
    return found
