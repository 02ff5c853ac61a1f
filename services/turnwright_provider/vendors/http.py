"""A model server over HTTP: any wire, one request at a time, answers folded as they come.

The base URL includes what stands before the wire's own paths, such as `/v1`. The key is optional. Redirects are not
followed: they would carry the key elsewhere.
Source: architecture 8, 15; research/wire 2.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from turnwright_core.chat.deltas import SetToolCalls
from turnwright_provider.domain.classify import classify
from turnwright_provider.domain.failures import Failure, FailureClass, VendorError, clean, failed
from turnwright_provider.domain.model_call import Dropped, Finish, ModelCall, VendorEvent
from turnwright_provider.domain.names import is_listed, listed_models
from turnwright_provider.domain.redact import Secrets
from turnwright_provider.domain.urls import SECRET_NAMES, below, public_url, secrets_of
from turnwright_provider.domain.wires.extra import with_extra
from turnwright_provider.domain.wires.wire import Wire, WireRequest
from turnwright_provider.ports import HttpReply, HttpRequest, Transport, VendorState
from turnwright_provider.vendors.patience import Patience
from turnwright_provider.vendors.replies import ERROR_BYTES_MAX, HttpReplyReader, start_of

LIST_BYTES_MAX: Final = 4 * 1024 * 1024
"""As much of a list of models is read; OpenRouter's has about 1 MB."""

MODELS_REMEMBERED_MAX: Final = 1000
"""For so many models it is remembered which fields they refuse."""


FINISH_CHARS_MAX: Final = 64
"""Longest finish reason that is passed on, in code points."""

MODEL_CHARS_MAX: Final = 256
"""Longest name of a model that is passed on, in code points."""

TEMPERATURE_SETTING: Final = "TURNWRIGHT_TEMPERATURE"
"""The executor's setting."""

_NOT_FOUND: Final = frozenset({404, 405})


class Endpoint(Struct, frozen=True):
    """Where and how a server is called. `check_timeout_s` bounds a look at its list of models.

    `headers` is what is sent beside the wire's and our own, `extra` the fields of every request. `key_setting` says
    where the key is set, for people.
    """

    base_url: str
    api_key: str
    event_bytes_max: int
    silence_timeout_s: float
    check_timeout_s: float
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    key_setting: str = ""
    tells_cost: bool = False

    def __repr__(self) -> str:
        """Without the key, and without headers, which may hold another."""
        return f"Endpoint({self.base_url!r})"


class HttpVendor:
    """Calls one server. `wall_clock` gives seconds since 1970, for Retry-After dates."""

    def __init__(self, endpoint: Endpoint, wire: Wire, transport: Transport, wall_clock: Callable[[], float]) -> None:
        self._access = endpoint
        self._wire = wire
        self._transport = transport
        self._wall_clock = wall_clock
        keys = (value for name, value in endpoint.headers.items() if SECRET_NAMES.search(name))
        self._secrets = Secrets((endpoint.api_key, *secrets_of(endpoint.base_url), *keys))
        self._reader = HttpReplyReader(endpoint.event_bytes_max, wire.framing)
        self._refused: dict[str, frozenset[str]] = {}

    def describe(self) -> VendorState:
        """Configured; the endpoint is the base URL."""
        return VendorState(
            public_url(self._access.base_url),
            key_setting=self._access.key_setting,
            tells_cost=self._access.tells_cost,
        )

    async def stream(self, call: ModelCall, attempt: int) -> AsyncGenerator[VendorEvent, None]:
        """One try. A request that is refused over a field that may give way is repeated without it."""
        del attempt
        with self._secrets_hidden():
            async with aclosing(self._stream(call)) as events:
                async for event in events:
                    yield self._hidden(event)

    async def _stream(self, call: ModelCall) -> AsyncGenerator[VendorEvent, None]:
        patience = Patience(self._access.silence_timeout_s)
        call = replace(call, extra=with_extra(self._access.extra, call.extra))
        while True:
            without = self._refused.get(call.model, frozenset())
            request = self._wire.request(call, without)
            dropped = (*request.dropped, *_gave_way(without & call.asked))
            check_required(call, dropped)
            async with self._open(self._post(request), patience) as reply:
                if reply.status == 200:
                    async with aclosing(self._reader.read(reply, self._wire.fold(), patience)) as events:
                        async for event in events:
                            yield replace(event, dropped=dropped) if isinstance(event, Finish) else event
                    return
                answer = await start_of(reply, ERROR_BYTES_MAX, patience)
            refused = self._wire.refused_field(reply.status, answer, call, without)
            if refused is None or refused in call.required:
                failure = classify(reply.status, reply.headers, answer, self._wall_clock())
                raise VendorError(replace(failure, hint=await self._hint(failure, call.model)))
            if len(self._refused) < MODELS_REMEMBERED_MAX or call.model in self._refused:
                self._refused[call.model] = without | {refused}

    @asynccontextmanager
    async def _open(self, request: HttpRequest, patience: Patience) -> AsyncGenerator[HttpReply, None]:
        async with AsyncExitStack() as stack:
            yield await patience.wait(stack.enter_async_context(self._transport.open(request)))

    async def _hint(self, failure: Failure, model: str) -> str:
        """What to do about a refusal, where more can be said than what the server said."""
        if failure.kind is not FailureClass.INVALID:
            return ""
        if failure.status in _NOT_FOUND:
            return await self._what_there_is(model)
        if "temperature" in failure.detail.lower():
            return f"{TEMPERATURE_SETTING} sets the temperature of runs that name none."
        return ""

    async def _what_there_is(self, model: str) -> str:
        """Whether the model or the address is wrong, as far as the server's list of models tells."""
        (denial,) = await self.check([model])
        if denial:
            return f"{denial}."
        path = urlsplit(self._access.base_url).path.rstrip("/")
        ends = "" if path.endswith("/v1") or self._wire.name != "chat" else "; most servers want one that ends in /v1"
        return f"The base URL is {self._endpoint()}{ends}."

    async def check(self, models: Sequence[str]) -> list[str]:
        """Ask the server for its models once; a server that keeps no list denies none."""
        try:
            with self._secrets_hidden():
                async with asyncio.timeout(self._access.check_timeout_s):
                    names = await self._names()
        except TimeoutError:
            return [f"{self._endpoint()} did not answer within {self._access.check_timeout_s:g} s"] * len(models)
        except VendorError as error:
            return [f"{self._endpoint()}: {clean(error.failure.detail)}"] * len(models)
        return [self._secrets.hide(self._denial(model, names)) for model in models]

    def _denial(self, model: str, names: frozenset[str] | None) -> str:
        if names is None or is_listed(model, names):
            return ""
        some = ", ".join(sorted(names)[:10])
        return f"{self._endpoint()} does not list {model}; it lists {some}{', ...' if len(names) > 10 else ''}"

    async def _names(self) -> frozenset[str] | None:
        patience = Patience(self._access.check_timeout_s)
        async with self._transport.open(self._get(self._wire.models_path)) as reply:
            answer = await start_of(reply, LIST_BYTES_MAX, patience)
        if reply.status == 200:
            return await asyncio.to_thread(listed_models, answer)
        failure = classify(reply.status, reply.headers, answer, self._wall_clock())
        if failure.kind is FailureClass.AUTH:
            raise VendorError(failure)
        return None

    @contextmanager
    def _secrets_hidden(self) -> Iterator[None]:
        """Take our own secrets out of what a vendor says of a failure."""
        try:
            yield
        except VendorError as error:
            failure = error.failure
            raise VendorError(
                replace(failure, detail=self._secrets.hide(failure.detail), hint=self._secrets.hide(failure.hint))
            ) from None

    def _hidden(self, event: VendorEvent) -> VendorEvent:
        """The same without our own secrets in words that are the server's and not the model's."""
        hide = self._secrets.hide
        if isinstance(event, Finish):
            reason, model = hide(event.reason)[:FINISH_CHARS_MAX], hide(event.vendor_model)[:MODEL_CHARS_MAX]
            return replace(event, reason=reason, vendor_model=model)
        if isinstance(event, SetToolCalls):
            return SetToolCalls(tuple(replace(call, id=hide(call.id), name=hide(call.name)) for call in event.calls))
        return event

    def _endpoint(self) -> str:
        return public_url(self._access.base_url)

    def _post(self, request: WireRequest) -> HttpRequest:
        headers = self._headers() | {"content-type": "application/json"} | dict(request.headers)
        return HttpRequest("POST", below(self._access.base_url, request.path), headers, request.body)

    def _get(self, path: str) -> HttpRequest:
        return HttpRequest("GET", below(self._access.base_url, path), self._headers())

    def _headers(self) -> dict[str, str]:
        ours = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "user-agent": "turnwright",
        }
        return {**ours, **self._wire.headers(self._access.api_key), **self._access.headers}


def _gave_way(refused: Iterable[str]) -> Iterator[Dropped]:
    for name in sorted(refused):
        yield Dropped(name, "The vendor refused it for this model.")


def check_required(call: ModelCall, dropped: Iterable[Dropped]) -> None:
    """Raise VendorError for a field that has to reach the vendor and does not."""
    for one in dropped:
        if one.field in call.required:
            raise failed(FailureClass.INVALID, f"{one.field} cannot be sent, and this call requires it: {one.reason}")
