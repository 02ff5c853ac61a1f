"""A database connection in its own thread that runs whole functions: one hop, however many statements.

Transactions are managed on the driver's connection, which is in autocommit mode; SQLAlchemy's own transactions never
reach the driver. Source: docs/adr/0003.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

T = TypeVar("T")


class Link(Protocol):
    """A connection as the driver's and as SQLAlchemy's; used by one thread."""

    def open(self) -> None: ...
    def close(self) -> None: ...


L = TypeVar("L", bound=Link)


class CaughtError:
    """Captures the exception that leaves its block, whatever it is, because it belongs to another caller."""

    error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error
        return True


class ThreadConnection(Generic[L]):
    """One link and its thread."""

    def __init__(self, link: L) -> None:
        self.link = link
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon thread: if the process fails before it closes us, the thread must not keep it alive.
        self._thread = threading.Thread(target=self._serve, name="store-writer", daemon=True)

    async def open(self) -> None:
        """Start the thread and connect in it. Raises the errors of the link; then there is nothing to close."""
        self._thread.start()
        try:
            await self.run(lambda link: link.open())
        except BaseException:
            self._calls.put(None)
            raise

    async def run(self, function: Callable[[L], T]) -> T:
        """Call a function with the link in the thread; returns its result."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            with CaughtError() as caught:
                result = function(self.link)
            if caught.error is not None:
                loop.call_soon_threadsafe(_fail, answer, caught.error)
            else:
                loop.call_soon_threadsafe(_resolve, answer, result)

        self._calls.put(call)
        return await answer

    def post(self, function: Callable[[], None], done: Callable[[], None]) -> None:
        """Call a function in the thread, then `done` in the event loop. The function must not raise."""
        loop = asyncio.get_running_loop()

        def call() -> None:
            function()
            loop.call_soon_threadsafe(done)

        self._calls.put(call)

    async def close(self) -> None:
        try:
            await self.run(lambda link: link.close())
        finally:
            self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _resolve(answer: asyncio.Future[Any], result: object) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
