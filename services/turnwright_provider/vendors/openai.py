"""Any server that speaks OpenAI's chat completions: OpenAI, OpenRouter, Ollama, xAI, llama.cpp, vLLM, LiteLLM, ...

What differs between those that have names of their own stands in `compatible.py`.

The base URL includes `/v1`; `/chat/completions` and `/models` are appended. The key is optional. Redirects are not
followed: they would carry the key elsewhere.
Source: architecture 8, 15; research/wire 2.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import field, replace
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from turnwright_core.values import frozen
from turnwright_provider.domain.body_shape import BodyShape, body_shape
from turnwright_provider.domain.chat_request import chat_body, refused_field
from turnwright_provider.domain.chunks import ChatFold
from turnwright_provider.domain.classify import classify
from turnwright_provider.domain.deltas import Delta, ModelCall, VendorEvent
from turnwright_provider.domain.failures import FailureClass, VendorError, clean, failed
from turnwright_provider.domain.names import is_listed, listed_models
from turnwright_provider.domain.redact import REDACTED
from turnwright_provider.domain.sse import SseReader
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.ports import HttpReply, HttpRequest, Transport, VendorState

ERROR_BYTES_MAX: Final = 64 * 1024
"""As much of an error body is read."""

LIST_BYTES_MAX: Final = 16 * 1024 * 1024
"""As much of a list of models is read; OpenRouter's has about 1 MB."""

MODELS_REMEMBERED_MAX: Final = 1000
"""For so many models it is remembered which fields they refuse."""

SNIFF_CHUNKS_MAX: Final = 64
"""After so many chunks a body has shown what it is."""

KEY_CHARS_MIN: Final = 6
"""A key as short as that is looked for in the words of a vendor."""

TAIL_S: Final = 0.05
"""Seconds that the end of a finished body may take; a body read to its end leaves the connection usable."""


@frozen
class OpenAiAccess:
    """Where and how the server is called. `check_timeout_s` bounds a look at its list of models.

    `thinking` holds the fields of a request that ask for reasoning, `headers` what is sent beside our own.
    """

    base_url: str
    api_key: str = field(repr=False)
    event_bytes_max: int
    check_timeout_s: float
    think_tags: ThinkTags
    thinking: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class OpenAiVendor:
    """Calls one server. `wall_clock` gives seconds since 1970, for Retry-After dates."""

    def __init__(self, access: OpenAiAccess, transport: Transport, wall_clock: Callable[[], float]) -> None:
        """Nothing is sent before the first call."""
        self._access = access
        self._transport = transport
        self._wall_clock = wall_clock
        self._refused: dict[str, frozenset[str]] = {}

    def describe(self) -> VendorState:
        """Configured; the endpoint is the base URL."""
        return VendorState(public_url(self._access.base_url))

    async def stream(self, call: ModelCall, attempt: int) -> AsyncGenerator[VendorEvent, None]:
        """One try. A request that is refused over a field that may give way is repeated without it."""
        del attempt
        with self._key_hidden():
            async with aclosing(self._stream(call)) as events:
                async for event in events:
                    yield event

    async def _stream(self, call: ModelCall) -> AsyncGenerator[VendorEvent, None]:
        while True:
            without = self._refused.get(call.model, frozenset())
            body = chat_body(call, without, self._access.thinking)
            async with self._transport.open(self._request("POST", "/chat/completions", body)) as reply:
                if reply.status == 200:
                    async with aclosing(self._read(reply)) as events:
                        async for event in events:
                            yield event
                    return
                answer = await _start_of(reply, ERROR_BYTES_MAX)
            refused = refused_field(reply.status, answer, call, without, self._access.thinking)
            if refused is None:
                raise VendorError(classify(reply.status, reply.headers, answer, self._wall_clock()))
            if len(self._refused) < MODELS_REMEMBERED_MAX or call.model in self._refused:
                self._refused[call.model] = without | {refused}

    async def check(self, models: Sequence[str]) -> list[str]:
        """Ask the server for its models once; a server that keeps no list denies none."""
        try:
            with self._key_hidden():
                async with asyncio.timeout(self._access.check_timeout_s):
                    names = await self._names()
        except TimeoutError:
            return [f"{self._endpoint()} did not answer within {self._access.check_timeout_s:g} s"] * len(models)
        except VendorError as error:
            return [f"{self._endpoint()}: {clean(error.failure.detail)}"] * len(models)
        return [self._denial(model, names) for model in models]

    def _denial(self, model: str, names: frozenset[str] | None) -> str:
        if names is None or is_listed(model, names):
            return ""
        some = ", ".join(sorted(names)[:10])
        return f"{self._endpoint()} does not list {model}; it lists {some}{', ...' if len(names) > 10 else ''}"

    async def _names(self) -> frozenset[str] | None:
        async with self._transport.open(self._request("GET", "/models", b"")) as reply:
            answer = await _start_of(reply, LIST_BYTES_MAX)
        if reply.status == 200:
            return listed_models(answer)
        failure = classify(reply.status, reply.headers, answer, self._wall_clock())
        if failure.kind is FailureClass.AUTH:
            raise VendorError(failure)
        return None

    @contextmanager
    def _key_hidden(self) -> Iterator[None]:
        """Take our own key out of what a vendor says; a short one would be found in any text."""
        try:
            yield
        except VendorError as error:
            failure, key = error.failure, self._access.api_key
            if len(key) < KEY_CHARS_MIN or key not in failure.detail:
                raise
            raise VendorError(replace(failure, detail=failure.detail.replace(key, REDACTED))) from None

    def _endpoint(self) -> str:
        return public_url(self._access.base_url)

    def _request(self, method: str, path: str, body: bytes) -> HttpRequest:
        headers = {"accept": "text/event-stream, application/json", "accept-encoding": "identity"}
        headers["user-agent"] = "turnwright"
        headers.update(self._access.headers)
        if body:
            headers["content-type"] = "application/json"
        if self._access.api_key:
            headers["authorization"] = f"Bearer {self._access.api_key}"
        return HttpRequest(method, _below(self._access.base_url, path), headers, body)

    async def _read(self, reply: HttpReply) -> AsyncGenerator[VendorEvent, None]:
        """The events of a 200. What was held back is told also when the stream breaks off."""
        fold = ChatFold(self._access.think_tags)
        try:
            async with aclosing(self._deltas(reply, fold)) as deltas:
                async for delta in deltas:
                    yield delta
        except VendorError:
            for delta in fold.flush():
                yield delta
            raise
        for event in fold.close():
            yield event

    async def _deltas(self, reply: HttpReply, fold: ChatFold) -> AsyncGenerator[Delta, None]:
        reader = SseReader(self._access.event_bytes_max)
        content_type = reply.headers.get("content-type", "")
        shape: BodyShape | None = None
        held: list[bytes] = []
        async with aclosing(_chunks(reply, fold)) as chunks:
            async for chunk in chunks:
                if shape is not BodyShape.EVENTS:
                    held.append(chunk)
                    shape = shape or body_shape(b"".join(held), content_type, at_end=len(held) > SNIFF_CHUNKS_MAX)
                    if shape is not BodyShape.EVENTS:
                        continue
                    chunk = b"".join(held)  # noqa: PLW2901 - from here on events are read as they come
                for event in reader.feed(chunk):
                    for delta in fold.event(event):
                        yield delta
                if fold.is_done:
                    await _finish(chunks)
                    return
        if shape is BodyShape.EVENTS:
            for delta in _last_events(reader, fold):
                yield delta
            return
        for delta in _whole(b"".join(held), content_type, fold):
            yield delta


async def _chunks(reply: HttpReply, fold: ChatFold) -> AsyncGenerator[bytes, None]:
    """The body; once the reply has come to its end, what breaks on the way out does not matter."""
    try:
        async with aclosing(reply.chunks()) as chunks:
            async for chunk in chunks:
                yield chunk
    except VendorError:
        if not fold.is_ended:
            raise


def _last_events(reader: SseReader, fold: ChatFold) -> list[Delta]:
    """What an event without its blank line says; half an event is a cut."""
    try:
        return [delta for event in reader.end() for delta in fold.event(event)]
    except VendorError as error:
        if error.failure.kind is not FailureClass.PROTOCOL:
            raise
        raise failed(FailureClass.SERVER, "the stream ended in the middle of an event") from None


def _whole(body: bytes, content_type: str, fold: ChatFold) -> list[Delta]:
    """A reply that came as one body: JSON, or nothing that could be one."""
    shape = body_shape(body, content_type, at_end=True)
    if shape is BodyShape.EVENTS:
        reader = SseReader(len(body) + 1)
        return [delta for event in (*reader.feed(body), *reader.end()) for delta in fold.event(event)]
    if shape is BodyShape.JSON:
        with contextlib.suppress(ValueError, RecursionError):
            return [*fold.whole(json.loads(body))]
    start = body[:200].decode("utf-8", "replace")
    raise failed(FailureClass.PROTOCOL, f"the answer ({content_type or 'of no type'}) is no event stream: {start}")


async def _finish(chunks: AsyncGenerator[bytes, None]) -> None:
    """Read what little may follow the last event; nothing after it counts."""
    with contextlib.suppress(TimeoutError, VendorError):
        async with asyncio.timeout(TAIL_S):
            async for _ in chunks:
                pass


async def _start_of(reply: HttpReply, bytes_max: int) -> bytes:
    """The beginning of a body; what breaks while it is read does not matter."""
    parts: list[bytes] = []
    size = 0
    with contextlib.suppress(VendorError):
        async with aclosing(reply.chunks()) as chunks:
            async for chunk in chunks:
                parts.append(chunk)
                size += len(chunk)
                if size >= bytes_max:
                    break
    return b"".join(parts)[:bytes_max]


def is_base_url(url: str) -> bool:
    """Whether this is a URL that can be called."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def public_url(url: str) -> str:
    """A URL without user, password, query and fragment; empty for what is no URL."""
    if not is_base_url(url):
        return ""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _below(base_url: str, path: str) -> str:
    """The URL of a path below the base; a query of the base, such as Azure's api-version, stays."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, parts.query, ""))
