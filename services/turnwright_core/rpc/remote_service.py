"""A connection to a service: deadlines on every call, our errors instead of gRPC's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Any, Final, Generic, TypeVar

import grpc

from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import MESSAGE_BYTES_MAX
from turnwright_core.rpc.errors import call_lost_error, from_rpc
from turnwright_core.rpc.transport import wait_for_connection

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # By default gRPC waits a second before it reconnects; a restarted service is back long before.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Despite its name: the minimum duration of a connection attempt. A busy service accepts late.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),
    # Our services are not behind the proxy that the environment names for the web.
    ("grpc.enable_http_proxy", 0),
)

Request = TypeVar("Request")
Response = TypeVar("Response")
ListedItem = TypeVar("ListedItem")
Whom = TypeVar("Whom")
"""For whom a service makes a call; a client only for itself."""


class RemoteService(Generic[Whom]):
    """A service as its callers see it. `timeout_s`: seconds that unary calls have, unless one sets others."""

    def __init__(
        self,
        name: str,
        address: str,
        channel: grpc.aio.Channel,
        timeout_s: float,
        metadata: tuple[tuple[str, str], ...],
    ) -> None:
        """Nothing is sent before the first call. `metadata` goes with each."""
        self.name = name
        self.address = address
        self.channel = channel
        self.timeout_s = timeout_s
        self._options: AbstractContextManager[dict[str, Any]] = nullcontext({"metadata": metadata})

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        timeout_s: float | None = None,
        caller: Whom | None = None,
    ) -> Response:
        """One answer, within the deadline. Raises TurnwrightError. `caller`: make the call on behalf of this caller."""
        answer: Response = await self._answer(method, request, timeout_s or self.timeout_s, caller)
        return answer

    async def upload(
        self,
        method: grpc.aio.StreamUnaryMultiCallable[Request, Response],
        requests: AsyncIterable[Request],
        timeout_s: float | None,
        caller: Whom | None = None,
    ) -> Response:
        """One answer to a stream of messages; without a deadline the caller limits the wait. Raises TurnwrightError."""
        answer: Response = await self._answer(method, requests, timeout_s, caller)
        return answer

    async def _answer(self, method: Any, request: Any, deadline: float | None, caller: Whom | None) -> Any:
        await wait_for_connection(self.channel)
        try:
            with self._sent(method, caller) as options:
                answer = await method(request, timeout=deadline, **options)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error, self.name, self.address) from None
        if answer is None:
            raise call_lost_error(self.name, self.address, "the call ended without an answer")
        return answer

    def _sent(self, _method: object, _caller: Whom | None) -> AbstractContextManager[dict[str, Any]]:
        """Around a call of a method: what goes with it."""
        return self._options

    async def items(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        of: Callable[[Response], Iterable[ListedItem]],
    ) -> AsyncGenerator[ListedItem]:
        """What the pages of a list have, from the requested page to the last. Raises TurnwrightError."""
        asked: Any = request
        while True:
            page: Any = await self.call(method, request)
            for item in of(page):
                yield item
            if not page.next_page_token:
                return
            asked.page_token = page.next_page_token

    def stream(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[Request, Response],
        request: Request,
        timeout_s: float | None,
        caller: Whom | None = None,
    ) -> aclosing[AsyncGenerator[Response]]:
        """A stream of answers, whose call ends with the block; without a deadline the caller limits the wait.

        `caller`: make the call on behalf of this caller. Iterating it raises TurnwrightError.
        """
        return aclosing(self._answers(method, request, timeout_s, caller))

    async def _answers(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[Request, Response],
        request: Request,
        timeout_s: float | None,
        caller: Whom | None,
    ) -> AsyncGenerator[Response]:
        await wait_for_connection(self.channel)
        try:
            with self._sent(method, caller) as options:
                call: Any = method(request, timeout=timeout_s, **options)
                try:
                    async for answer in call:
                        yield answer
                finally:
                    call.cancel()
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error, self.name, self.address) from None

    def cut_short(self, without: str) -> TurnwrightError:
        """The error for a streamed answer that ended with OK, but before its last message: a proxy has ended it."""
        return call_lost_error(self.name, self.address, f"the answer ended without {without}")

    async def close(self) -> None:
        await self.channel.close()
