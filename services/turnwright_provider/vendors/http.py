"""A model server over HTTP, for any wire: one request at a time, answers folded as they arrive.

The base URL includes everything before the wire's own paths, such as `/v1`. The key is optional. Redirects are not
followed, because they would send the key elsewhere. Source: architecture 8, 15; research/wire 2.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace
from turnwright_values.provider import Dropped, Finish

from turnwright_core.chat.deltas import SetToolCalls
from turnwright_core.limits import FINISH_REASON_CHARS_MAX, VENDOR_MODEL_CHARS_MAX
from turnwright_provider.domain.classify import classify, denies_model
from turnwright_provider.domain.endpoints import (
    SECRET_NAMES,
    EndpointSpec,
    join_url,
    public_url,
    secrets_of,
    server_root,
)
from turnwright_provider.domain.failures import Failure, FailureClass, Secrets, VendorError, clean, failed
from turnwright_provider.domain.model_call import ModelCall, VendorEvent, was_cut
from turnwright_provider.domain.model_info import UNKNOWN, ModelInfo, first_count
from turnwright_provider.domain.model_list import (
    ModelList,
    ModelQuestion,
    parse_json_body,
    parse_model_list,
    question_of,
)
from turnwright_provider.domain.refused import refused_parts
from turnwright_provider.domain.wires.wire import Wire, WireRequest, wire_class, with_extra
from turnwright_provider.ports import ModelCheck, VendorState
from turnwright_provider.vendors.replies import ERROR_BYTES_MAX, AttemptTimeout, HttpReplyReader, read_body_start
from turnwright_provider.vendors.transport import HttpLimits, HttpReply, HttpTransport, ignored_proxy, is_near

# A server's model catalogue: its list, and for some servers one more question for each model.

ASKED_AT_ONCE: Final = 4
"""Concurrent questions about single models."""

Fetch = Callable[[str, str, bytes], Awaitable[bytes | None]]
"""Method, URL and body -> the answer; None for a refusal. Raises VendorError."""


class Catalogue:
    """Queries the catalogue of one server."""

    def __init__(self, fetch: Fetch, spec: EndpointSpec, wire: Wire, timeout_s: float) -> None:
        self._fetch = fetch
        self._preset = spec.preset.name
        self._list_url = join_url(spec.base_url, wire.models_path)
        self._root = server_root(spec.base_url, spec.preset.usual_path or wire.usual_path)
        self._endpoint = public_url(spec.base_url)
        self._timeout_s = timeout_s

    async def check(self, models: Sequence[str]) -> list[ModelCheck]:
        """Check models. A server without a list denies none."""
        try:
            async with asyncio.timeout(self._timeout_s):
                listing = await self._listing()
        except TimeoutError:
            return [ModelCheck(f"{self._endpoint} did not answer within {self._timeout_s:g} s")] * len(models)
        except VendorError as error:
            return [ModelCheck(f"{self._endpoint}: {clean(error.failure.detail)}")] * len(models)
        infos = await self._infos(models, listing)
        # Comparing a name with those of a long list takes a while.
        problems = await asyncio.to_thread(lambda: list(map(listing.denial, models)))
        return [
            ModelCheck(problem and f"{self._endpoint} {problem}", info)
            for problem, info in zip(problems, infos, strict=True)
        ]

    async def denial(self, model: str) -> str:
        """The error for a model that the server does not list, with suggestions; empty if it may exist."""
        with suppress(TimeoutError, VendorError):
            async with asyncio.timeout(self._timeout_s):
                listing = await self._listing()
            if problem := await asyncio.to_thread(listing.denial, model):
                return f"{self._endpoint} {problem}."
        return ""

    async def _listing(self) -> ModelList:
        answer = await self._fetch("GET", self._list_url, b"")
        return ModelList({}) if answer is None else await asyncio.to_thread(parse_model_list, answer)

    async def _infos(self, models: Sequence[str], listing: ModelList) -> list[ModelInfo]:
        infos = [listing.info(model) for model in models]
        question = question_of(self._preset, listing.owner)
        if question is None:
            return infos
        room = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(place: int) -> None:
            with suppress(VendorError):
                async with room:
                    infos[place] = (await self._answer(question, models[place])).or_else(infos[place])

        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s), asyncio.TaskGroup() as group:
                for place in range(len(models)):
                    group.create_task(ask(place))
        return infos

    async def _answer(self, question: ModelQuestion, model: str) -> ModelInfo:
        asked = json.dumps({"model": model}).encode() if question.names_model else b""
        answer = await self._fetch("POST" if asked else "GET", join_url(self._root, question.path), asked)
        return UNKNOWN if answer is None else await asyncio.to_thread(question.read, answer, model)


LIST_BYTES_MAX: Final = 4 * 1024 * 1024
"""As much of a list of models is read; OpenRouter's has about 1 MB."""

WORDS_REMEMBERED_MAX: Final = 1024
"""Maximum number of ids and names that are not searched for secrets again."""

MODELS_REMEMBERED_MAX: Final = 1000
"""Maximum number of models for which refused fields are remembered."""


TEMPERATURE_SETTING: Final = "TURNWRIGHT_TEMPERATURE"
"""The executor's setting."""

_COUNTS: Final = ("input_tokens", "totalTokens")
"""Where an answer of a vendor that counts tokens has their number."""

_NOT_FOUND: Final = frozenset({404, 405})


class HttpVendor:
    """Calls one server."""

    def __init__(self, spec: EndpointSpec, wire: Wire, limits: HttpLimits, *, from_environment: bool = False) -> None:
        """`from_environment`: use proxies from the environment."""
        self._spec = spec
        self._base_url = spec.base_url
        self._wire = wire
        self._limits = limits
        self._from_environment = from_environment
        self._transport = HttpTransport(self._base_url, limits, from_environment=from_environment)
        keys = (value for name, value in spec.headers.items() if SECRET_NAMES.search(name))
        self._secrets = Secrets((spec.api_key, *secrets_of(self._base_url), *keys))
        self._reader = HttpReplyReader(limits.event_bytes_max, wire.framing)
        self._catalogue = Catalogue(self._fetch, spec, wire, limits.check_timeout_s)
        self._refused: dict[str, frozenset[str]] = {}
        # Each report of the calls so far names all of them again.
        self._hide = lru_cache(WORDS_REMEMBERED_MAX)(self._secrets.hide)

    async def close(self) -> None:
        await self._transport.close()

    def describe(self) -> VendorState:
        """Configured; the endpoint is the base URL."""
        return VendorState(
            public_url(self._base_url),
            key_setting=self._spec.key_setting,
            reports_cost=self._spec.preset.reports_cost,
        )

    async def stream(self, call: ModelCall, attempt: int) -> AsyncGenerator[VendorEvent, None]:
        """One attempt. If an optional field is refused, the request is repeated without it."""
        del attempt
        timeout = AttemptTimeout(self._limits.silence_timeout_s)
        call = replace(call, extra=with_extra(self._spec.extra, call.extra))
        with self._secrets_hidden():
            while True:
                refusals = self._refused.get(call.model, frozenset())
                without = refusals | call.unsupported_fields
                request = self._wire.request(call, without)
                dropped = (*request.dropped, *_without_refused(without & call.asked), *refused_parts(call))
                check_required(call, dropped)
                async with self._post(request, timeout) as reply:
                    if reply.status == 200:
                        async with aclosing(self._reader.read(reply, self._wire.fold(), timeout)) as events:
                            async for event in events:
                                yield self._hidden(_end(event, call, dropped) if isinstance(event, Finish) else event)
                        return
                    answer = await read_body_start(reply, ERROR_BYTES_MAX, timeout)
                refused = self._wire.refused_field(reply.status, answer, call, without)
                if refused is None or refused in call.required:
                    failure = classify(reply.status, reply.headers, answer, time.time())
                    raise VendorError(replace(failure, hint=await self._hint(failure, call.model)))
                if len(self._refused) < MODELS_REMEMBERED_MAX or call.model in self._refused:
                    self._refused[call.model] = refusals | {refused}

    @asynccontextmanager
    async def _post(self, request: WireRequest, attempt: AttemptTimeout) -> AsyncGenerator[HttpReply, None]:
        url = join_url(self._base_url, request.path)
        async with AsyncExitStack() as stack:
            opening = self._transport.open("POST", url, self._headers(request.body), request.body)
            try:
                reply = await attempt.wait(stack.enter_async_context(opening))
            except VendorError as error:
                if error.failure.kind is not FailureClass.UNREACHABLE:
                    raise
                url = public_url(self._base_url)
                raise VendorError(replace(error.failure, url=url, hint=self._connection_hint())) from None
            yield reply

    def _connection_hint(self) -> str:
        """What to look at if no connection is made."""
        proxy = ignored_proxy(self._base_url, from_environment=self._from_environment)
        sentences = (
            "Is the server running?" if is_near(self._base_url) else "",
            self._spec.url_setting and f"{self._spec.url_setting} sets its address.",
            proxy and f"{proxy} is set and not used: TURNWRIGHT_PROXY_FROM_ENV=true uses it.",
        )
        return " ".join(filter(None, sentences))

    async def _hint(self, failure: Failure, model: str) -> str:
        """Advice about a refusal, beyond what the server said."""
        if failure.kind is not FailureClass.INVALID:
            return ""
        is_not_found = failure.status in _NOT_FOUND
        if is_not_found or denies_model(failure.detail):
            if denial := await self._catalogue.denial(model):
                return denial
            if is_not_found:
                return self._url_hint()
        if "temperature" in failure.detail.lower():
            return f"{TEMPERATURE_SETTING} sets the temperature of runs that name none."
        return ""

    def _url_hint(self) -> str:
        """What may be wrong with the base URL, if the server lacks a path that every such server has."""
        url, usual = public_url(self._base_url), self._spec.preset.usual_path or self._wire.usual_path
        is_usual = urlsplit(url).path.rstrip("/").endswith(usual)
        wanted = "" if is_usual else f"; should it end in {usual}?"
        return f"The base URL is {url}{wanted or '.'}"

    async def check(self, models: Sequence[str]) -> list[ModelCheck]:
        """Ask the server for its models once; a server without a list denies none."""
        checks = await self._catalogue.check(models)
        return [replace(one, problem=self._secrets.hide(one.problem)) for one in checks]

    async def count_tokens(self, call: ModelCall) -> int | None:
        # llama.cpp counts by Anthropic's endpoint alone.
        wire = wire_class("anthropic")() if self._spec.preset.name == "llamacpp" else self._wire
        call = replace(call, extra=with_extra(self._spec.extra, call.extra))
        request = wire.count_request(call, self._refused.get(call.model, frozenset()) | call.unsupported_fields)
        if request is None:
            return None
        try:
            answer = await self._fetch("POST", join_url(self._base_url, request.path), request.body)
        except VendorError:
            return None
        counted = None if answer is None else parse_json_body(answer)
        return first_count(map(counted.get, _COUNTS)) or None if isinstance(counted, dict) else None

    async def _fetch(self, method: str, url: str, body: bytes) -> bytes | None:
        """The answer to a question other than a call; None if it is refused, unless because of the key."""
        attempt = AttemptTimeout(self._limits.check_timeout_s)
        with self._secrets_hidden():
            async with self._transport.open(method, url, self._headers(body), body) as reply:
                answer = await read_body_start(reply, LIST_BYTES_MAX, attempt)
            if reply.status == 200:
                return answer
            failure = classify(reply.status, reply.headers, answer, time.time())
            if failure.kind is FailureClass.AUTH:
                raise VendorError(failure)
            return None

    @contextmanager
    def _secrets_hidden(self) -> Iterator[None]:
        """Redact our own secrets in a vendor's failure."""
        try:
            yield
        except VendorError as error:
            failure = error.failure
            raise VendorError(
                replace(failure, detail=self._secrets.hide(failure.detail), hint=self._secrets.hide(failure.hint))
            ) from None

    def _hidden(self, event: VendorEvent) -> VendorEvent:
        """Redact our own secrets in texts of the server that are not the model's."""
        hide = self._hide
        if isinstance(event, Finish):
            model = hide(event.vendor_model)[:VENDOR_MODEL_CHARS_MAX]
            return replace(event, reason=hide(event.reason)[:FINISH_REASON_CHARS_MAX], vendor_model=model)
        if isinstance(event, SetToolCalls):
            return SetToolCalls(tuple(replace(call, id=hide(call.id), name=hide(call.name)) for call in event.calls))
        return event

    def _headers(self, body: bytes) -> dict[str, str]:
        ours = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "user-agent": "turnwright",
            **self._wire.headers(self._spec.api_key),
            **self._spec.headers,
        }
        return ours | {"content-type": "application/json"} if body else ours


def _end(finish: Finish, call: ModelCall, dropped: tuple[Dropped, ...]) -> Finish:
    """The end of a reply, with what was left out of the request.

    A reply as long as the output limit is truncated, whatever the server says: llama.cpp reports it as completed.
    """
    written = finish.usage.completion_tokens if finish.usage else 0
    is_long = 0 < (call.output_tokens_max or 0) <= written
    return replace(finish, dropped=dropped, reason="length" if is_long and not was_cut(finish) else finish.reason)


def _without_refused(refused: Iterable[str]) -> Iterator[Dropped]:
    for name in sorted(refused):
        yield Dropped(name, "The vendor does not take it for this model.")


def check_required(call: ModelCall, dropped: Iterable[Dropped]) -> None:
    """Raise VendorError if a required field is not sent."""
    for one in dropped:
        if one.field in call.required:
            raise failed(FailureClass.INVALID, f"{one.field} is not supported, and this call requires it: {one.reason}")
