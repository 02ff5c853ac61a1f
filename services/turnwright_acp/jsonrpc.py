"""JSON-RPC 2.0 over two byte streams, a message a line: requests are answered by a task each, and may be made too.

Whatever comes in is answered unless it is a notification or an answer, and nothing of it ends the process (AG02, AG03,
AG09). Messages leave in the order in which they were sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnwright_core.limits import IMAGES_BYTES_MAX
from turnwright_kit.logs import get_logger

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REQUEST_CANCELLED: Final = -32800
CANCEL_REQUEST: Final = "$/cancel_request"

LINE_BYTES_MAX: Final = 2 * IMAGES_BYTES_MAX
"""Maximum length of a line, in bytes: all images of a prompt, in base64; a longer one is skipped and answered."""
READ_BYTES: Final = 64 * 1024
CHUNKS_MAX: Final = 16
"""Maximum number of pieces of input that wait to be looked at; then the sender waits."""
UNSENT_BYTES_MAX: Final = 4 * 2**20
"""Bytes that may wait to be written before `drain` waits."""
REQUESTS_MAX: Final = 256
"""Maximum number of requests that are worked on at once; one more is refused."""
FLUSH_S: Final = 2.0
"""Seconds that the last messages may take to be written once the input has ended."""

Json = Any
RequestId = str | int | None
_log = get_logger("acp")


class RpcError(Exception):
    """An error of the protocol: as an answer to a request, or from the other side."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Answer(Struct):
    """The result of a request, and what is to be sent right behind it."""

    result: Json
    then: Callable[[], None] | None = None


class Pending(Struct):
    """A request that has not been answered."""

    task: asyncio.Task[None]
    method: str
    params: dict[str, Json]


class StreamEndedError(Exception):
    """The other side has gone."""


RequestHandler = Callable[[str, dict[str, Json]], Awaitable[Answer]]
"""Answers a request by its method and its parameters. Raises RpcError."""
NotificationHandler = Callable[[str, dict[str, Json]], None]
"""Takes a notification."""


class Connection:
    """One connection to a client. `input_fd` and `output_fd` belong to it from now on."""

    def __init__(
        self,
        input_fd: int,
        output_fd: int,
        handle: RequestHandler,
        listen: NotificationHandler,
        cancels: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`cancels`: requests that a notification with their parameters cancels; they answer by themselves."""
        self._input_fd, self._output_fd = input_fd, output_fd
        self._handle, self._listen = handle, listen
        self._cancels = cancels
        self._requests: dict[RequestId, Pending] = {}
        self._cancelled: set[RequestId] = set()
        self._asked: dict[RequestId, asyncio.Future[Json]] = {}
        self._next_id = 0
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._has_unsent, self._has_room = asyncio.Event(), asyncio.Event()
        self._has_room.set()
        self._is_ended = False

    async def serve(self) -> None:
        """Answer until the input ends or the output is closed; every task has ended then."""
        for fd in (self._input_fd, self._output_fd):
            # The other side of a terminal or a socket may have set it.
            os.set_blocking(fd, True)
        writer = asyncio.create_task(self._write(), name="acp-writer")
        reader = asyncio.create_task(self._read(), name="acp-reader")
        try:
            await asyncio.wait((writer, reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_ended = True
            reader.cancel()
            for future in self._asked.values():
                future.cancel()
            tasks = [reader, *(one.task for one in self._requests.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._has_unsent.set()
            await asyncio.wait((writer,), timeout=FLUSH_S)
            writer.cancel()

    def notify(self, method: str, params: Json) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def drain(self) -> None:
        """Wait until the other side has taken enough of what was sent."""
        await self._has_room.wait()

    async def request(self, method: str, params: Json) -> Json:
        """Ask the client. Raises RpcError, or StreamEndedError; if it is cancelled, the client is told."""
        if self._is_ended:
            raise StreamEndedError
        self._next_id += 1
        number, future = self._next_id, asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled() and self._is_ended:
                raise StreamEndedError from None
            self.notify(CANCEL_REQUEST, {"requestId": number})
            raise
        finally:
            self._asked.pop(number, None)

    async def _read(self) -> None:
        async with contextlib.aclosing(_chunks(self._input_fd)) as chunks:
            lines = LineSplitter()
            async for chunk in chunks:
                for line in lines.feed(chunk):
                    self._take(line)
                # What the lines have begun goes on before more is read, and who does not read is not read either.
                await asyncio.sleep(0)
                await self.drain()
            for line in lines.end():
                self._take(line)

    def _take(self, line: bytes | None) -> None:
        if line is None:
            self._refuse(None, INVALID_REQUEST, f"A line has at most {LINE_BYTES_MAX} bytes; this one was skipped.")
            return
        if not line.strip():
            return
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(None, PARSE_ERROR, f"The line is not JSON: {error}")
            return
        if not isinstance(message, dict):
            self._refuse(None, INVALID_REQUEST, "A message is a JSON object; there are no batches.")
        elif "method" not in message and ("result" in message or "error" in message):
            self._answered(message)
        else:
            self._called(message)

    def _called(self, message: dict[str, Json]) -> None:
        number, method, params = message.get("id"), message.get("method"), message.get("params", {})
        has_id = "id" in message
        if number is not None and not _is_id(number):
            self._refuse(None, INVALID_REQUEST, "`id` must be a string or an integer.")
        elif not isinstance(method, str):
            self._refuse(number, INVALID_REQUEST, "`method` must be a string.")
        elif message.get("jsonrpc") != "2.0":
            self._refuse_if(has_id, number, INVALID_REQUEST, '`jsonrpc` must be "2.0".')
        elif not isinstance(params if params is not None else {}, dict):
            self._refuse_if(has_id, number, INVALID_PARAMS, "`params` must be an object.")
        elif not has_id:
            # What came before it has begun by then.
            asyncio.get_running_loop().call_soon(self._notified, method, params or {})
        elif number in self._requests:
            self._refuse(number, INVALID_REQUEST, "A request with this `id` has not been answered yet.")
        elif len(self._requests) >= REQUESTS_MAX:
            self._refuse(number, INTERNAL_ERROR, f"At most {REQUESTS_MAX} requests are worked on at once; try later.")
        else:
            task = asyncio.create_task(self._answer(number, method, params or {}), name=f"acp {method[:64]}")
            self._requests[number] = Pending(task, method, params or {})
            task.add_done_callback(lambda _: self._requests.pop(number, None))

    def _notified(self, method: str, params: dict[str, Json]) -> None:
        if method == CANCEL_REQUEST:
            number = params.get("requestId")
            pending = self._requests.get(number) if _is_id(number) else None
            if pending is None:
                return
            if pending.method not in self._cancels:
                self._cancelled.add(number)
                pending.task.cancel()
                return
            method, params = self._cancels[pending.method], pending.params
        try:
            self._listen(method, params)
        except RpcError as error:
            # A notification has no answer.
            _log.warning("notification_refused", method=method, reason=error.message)

    async def _answer(self, number: RequestId, method: str, params: dict[str, Json]) -> None:
        then = None
        try:
            answer = await self._handle(method, params)
            message: dict[str, Json] = {"result": answer.result}
            then = answer.then
        except RpcError as error:
            message = {"error": _error(error)}
        except asyncio.CancelledError:
            if number not in self._cancelled:
                raise
            message = {"error": _error(RpcError(REQUEST_CANCELLED, "The request was cancelled."))}
        except Exception as error:  # noqa: BLE001 - whatever it was: the request is answered, and the process lives
            _log.error("request_failed", method=method, exc_info=error)
            message = {"error": _error(RpcError(INTERNAL_ERROR, f"Internal error: {type(error).__name__}."))}
        self._cancelled.discard(number)
        self._send({"jsonrpc": "2.0", "id": number, **message})
        if then is not None:
            then()

    def _answered(self, message: dict[str, Json]) -> None:
        number = message.get("id")
        future = self._asked.get(number) if _is_id(number) else None
        if future is None or future.done():
            _log.warning("answer_dropped", id=str(number)[:64])
        elif "error" in message:
            future.set_exception(_read_error(message["error"]))
        else:
            future.set_result(message["result"])

    def _refuse_if(self, has_id: bool, number: RequestId, code: int, text: str) -> None:
        if has_id:
            self._refuse(number, code, text)

    def _refuse(self, number: RequestId, code: int, text: str) -> None:
        self._send({"jsonrpc": "2.0", "id": number, "error": _error(RpcError(code, text))})

    def _send(self, message: dict[str, Json]) -> None:
        line = msgspec.json.encode(message) + b"\n"
        self._unsent.append(line)
        self._unsent_bytes += len(line)
        if self._unsent_bytes > UNSENT_BYTES_MAX:
            self._has_room.clear()
        self._has_unsent.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._has_unsent.wait()
                self._has_unsent.clear()
                data, self._unsent = b"".join(self._unsent), []
                if data:
                    await _write_all(self._output_fd, data)
                    self._unsent_bytes -= len(data)
                    if self._unsent_bytes <= UNSENT_BYTES_MAX:
                        self._has_room.set()
                if self._is_ended and not self._unsent:
                    return
        except OSError as error:
            _log.warning("output_closed", reason=str(error))
        finally:
            self._has_room.set()


class LineSplitter:
    """Splits bytes into lines. A line that is too long comes as None."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0
        self._is_skipping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """The lines that are complete with this piece."""
        *whole, rest = chunk.split(b"\n")
        lines = []
        for piece in whole:
            self._add(piece)
            lines += self.end()
        self._add(rest)
        return lines

    def end(self) -> list[bytes | None]:
        """The line so far, if there is one."""
        line = None if self._is_skipping else b"".join(self._parts)
        found = [line] if line is None or line else []
        self._parts, self._length, self._is_skipping = [], 0, False
        return found

    def _add(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > LINE_BYTES_MAX:
            self._parts, self._is_skipping = [], True
        else:
            self._parts.append(piece)


async def _chunks(fd: int) -> AsyncGenerator[bytes, None]:
    """What is read from a descriptor, which may be a pipe, a file or a terminal, until it ends."""
    loop, queue, room = asyncio.get_running_loop(), asyncio.Queue[bytes](), threading.Semaphore(CHUNKS_MAX)

    def read() -> None:
        while True:
            try:
                chunk = os.read(fd, READ_BYTES)
            except OSError:
                chunk = b""
            room.acquire()
            try:
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            except RuntimeError:
                # The loop has ended.
                return
            if not chunk:
                return

    # A daemon: nothing wakes it from a terminal on which nobody types.
    threading.Thread(target=read, name="acp-input", daemon=True).start()
    while chunk := await queue.get():
        room.release()
        yield chunk


def _is_id(value: Json) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


async def _write_all(fd: int, data: bytes) -> None:
    """Write all of it; where that may have to wait, in a thread. Raises OSError."""
    if len(data) <= select.PIPE_BUF:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        if poll.poll(0):
            os.write(fd, data)
            return
    loop = asyncio.get_running_loop()
    done: asyncio.Future[OSError | None] = loop.create_future()

    def settle(error: OSError | None) -> None:
        if not done.done():
            done.set_result(error)

    def write() -> None:
        view, failed = memoryview(data), None
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError as error:
            failed = error
        with contextlib.suppress(RuntimeError):
            # The loop may have ended.
            loop.call_soon_threadsafe(settle, failed)

    # A daemon: nothing wakes it from a pipe that nobody reads.
    threading.Thread(target=write, name="acp-output", daemon=True).start()
    if error := await done:
        raise error


def _error(error: RpcError) -> dict[str, Json]:
    described = {"code": error.code, "message": error.message}
    return described if error.data is None else {**described, "data": error.data}


def _read_error(value: Json) -> RpcError:
    fields = value if isinstance(value, dict) else {}
    code, message = fields.get("code"), fields.get("message")
    return RpcError(
        code if isinstance(code, int) else INTERNAL_ERROR,
        message if isinstance(message, str) else "The client answered with an error.",
        fields.get("data"),
    )
