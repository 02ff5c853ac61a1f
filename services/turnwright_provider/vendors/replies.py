"""Reads the body of an answer: an event stream, a reply in one piece, or an error."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from enum import Enum
from typing import Final, TypeVar

from turnwright_core.chat.deltas import Delta
from turnwright_core.json_text import parse_json
from turnwright_provider.domain.failures import Failure, FailureClass, VendorError, failed
from turnwright_provider.domain.model_call import VendorEvent
from turnwright_provider.domain.sse import EventReader, LineReader, SseEvent, SseReader
from turnwright_provider.domain.wires.json_fold import JsonFold
from turnwright_provider.domain.wires.wire import Framing
from turnwright_provider.vendors.transport import HttpReply

_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
_ENOUGH_BYTES: Final = 8


class BodyShape(Enum):
    """Kinds of bodies."""

    EVENTS = "events"
    JSON = "json"
    OTHER = "other"


def body_shape(start: bytes, content_type: str, *, at_end: bool) -> BodyShape | None:
    """The kind of a body that begins like this; None if more bytes are needed, which cannot be `at_end`."""
    start = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith((b"{", b"[")):
        return BodyShape.JSON
    if len(start) < _ENOUGH_BYTES and not at_end and not start.startswith(b":"):
        return None
    if start.startswith(_FIELDS) or not start:
        return BodyShape.EVENTS
    is_events = content_type.partition(";")[0].strip().lower() == "text/event-stream" and not start.startswith(b"<")
    return BodyShape.EVENTS if is_events else BodyShape.OTHER


T = TypeVar("T")

# Timeouts that measure progress of the reply instead of bytes.
#
# Routers send comments while a model is queued, and a server can send a byte now and then forever. Until the reply
# begins, such signs of life double the time limit; from then on only more of the reply counts.

SILENCES_BEFORE_TOKEN: Final = 2
"""Multiple of the silence timeout that the first token may take."""

END_S: Final = 30.0
"""Seconds to wait for more, such as the usage, after a stop reason. Some servers give one with every piece."""


class AttemptTimeout:
    """The time left for one attempt; only time spent waiting for the vendor counts."""

    def __init__(self, silence_s: float) -> None:
        """`silence_s` is the longest time without progress once the reply has begun, in seconds."""
        self._silence_s = silence_s
        self._limit_s = SILENCES_BEFORE_TOKEN * silence_s
        self._left_s = self._limit_s
        self._progress = 0

    def note_progress(self, progress: int, *, is_ended: bool = False) -> None:
        """Note how far the reply has come; any change is progress. `is_ended`: it has a stop reason."""
        if progress != self._progress:
            self._progress = progress
            self._limit_s = self._left_s = min(self._silence_s, END_S) if is_ended else self._silence_s

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await the vendor. Raises VendorError on timeout."""
        clock = asyncio.get_running_loop().time
        begin_s = clock()
        try:
            async with asyncio.timeout(self._left_s) as limit:
                return await awaitable
        except TimeoutError:
            if not limit.expired():
                raise
            what = "more of the reply" if self._progress else "a token"
            detail = f"waited {self._limit_s:g} s for {what}"
            raise VendorError(Failure(FailureClass.TIMEOUT, detail, timeout_s=self._limit_s)) from None
        finally:
            self._left_s -= clock() - begin_s


ERROR_BYTES_MAX: Final = 64 * 1024
"""Maximum number of bytes of an error body that are read."""

SNIFF_CHUNKS_MAX: Final = 64
"""Maximum number of chunks for detecting the kind of body."""

TAIL_S: Final = 0.05
"""Seconds that the end of a finished body may take; a body read to its end keeps the connection usable."""

NOISE_EVENTS: Final = 2
"""Maximum length of consecutive comments and empty events, as a multiple of the longest event."""

DELTAS_MAX: Final = 256
"""Deltas after which the event loop gets a turn: one event can hold thousands."""

ASIDE_CHARS: Final = 4 * 1024
"""Length from which an event, or the end of a reply, is read in a thread: the worst case takes a microsecond per
character. Below it a thread would only take the interpreter away from the deltas that are being sent."""

PARSES_MAX: Final = 2
"""Maximum number of long texts that are parsed at a time: one of brackets takes twenty times its length in memory."""

_READERS: Final[dict[Framing, type[EventReader]]] = {Framing.SSE: SseReader, Framing.LINES: LineReader}


class HttpReplyReader:
    """Reads answers of one server. `event_bytes_max` limits an event, and a reply that is not a stream."""

    def __init__(self, event_bytes_max: int, framing: Framing = Framing.SSE) -> None:
        self._event_bytes_max = event_bytes_max
        self._framing = framing
        self._parses = asyncio.Semaphore(PARSES_MAX)

    async def read(
        self, reply: HttpReply, fold: JsonFold, attempt: AttemptTimeout
    ) -> AsyncGenerator[VendorEvent, None]:
        """The events of a 200. What was held back is returned even if the stream breaks off."""
        try:
            async with aclosing(self._deltas(reply, fold, attempt)) as deltas:
                count = 0
                async for delta in deltas:
                    yield delta
                    count += 1
                    if count % DELTAS_MAX == 0:
                        await asyncio.sleep(0)
            # A long reply may have to be searched for calls.
            last = fold.close() if fold.progress < ASIDE_CHARS else await asyncio.to_thread(fold.close)
        except VendorError:
            for delta in fold.break_off():
                yield delta
            raise
        for event in last:
            yield event

    async def _deltas(self, reply: HttpReply, fold: JsonFold, attempt: AttemptTimeout) -> AsyncGenerator[Delta, None]:
        reader = _READERS[self._framing](self._event_bytes_max)
        content_type = reply.headers.get("content-type", "")
        # A reply in one piece is as good a line as any.
        shape = BodyShape.EVENTS if self._framing is Framing.LINES else None
        held = bytearray()
        count = progress = noise_bytes = 0
        async with aclosing(_chunks(reply, fold, attempt)) as chunks:
            async for chunk in chunks:
                if shape is not BodyShape.EVENTS:
                    held += chunk
                    count += 1
                    self._check(len(held))
                    shape = shape or body_shape(bytes(held), content_type, at_end=count > SNIFF_CHUNKS_MAX)
                    if shape is not BodyShape.EVENTS:
                        continue
                    chunk = bytes(held)  # noqa: PLW2901 - from here on events are read as they come
                for event in reader.feed(chunk):
                    for delta in await self._fold(event, fold):
                        yield delta
                noise_bytes = len(chunk) + (noise_bytes if fold.progress == progress else 0)
                progress = fold.progress
                attempt.note_progress(progress, is_ended=fold.is_ended)
                if noise_bytes > NOISE_EVENTS * self._event_bytes_max:
                    raise failed(FailureClass.PROTOCOL, f"{noise_bytes} bytes in a row brought nothing of a reply")
                if fold.is_done:
                    await _drain(chunks)
                    return
        if shape is BodyShape.EVENTS:
            deltas = await self._in_thread(lambda: _last_events(reader, fold))
        else:
            deltas = await self._in_thread(lambda: _whole(bytes(held), content_type, fold))
        for delta in deltas:
            yield delta

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._event_bytes_max:
            message = f"an answer that is not a stream is longer than {self._event_bytes_max} bytes"
            raise failed(FailureClass.PROTOCOL, message)

    async def _fold(self, event: SseEvent, fold: JsonFold) -> list[Delta]:
        if len(event.data) < ASIDE_CHARS:
            return fold.event(event)
        return await self._in_thread(lambda: fold.event(event))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        async with self._parses:
            return await asyncio.to_thread(work)


async def _chunks(reply: HttpReply, fold: JsonFold, attempt: AttemptTimeout) -> AsyncGenerator[bytes, None]:
    """The body; errors after the end of the reply are ignored."""
    try:
        async with aclosing(reply.chunks()) as chunks:
            while (chunk := await attempt.wait(anext(chunks, None))) is not None:
                yield chunk
    except VendorError:
        if not fold.is_ended:
            raise


def _last_events(reader: EventReader, fold: JsonFold) -> list[Delta]:
    """An event without its final blank line; half an event means that the stream was cut off."""
    try:
        deltas = [delta for event in reader.end() for delta in fold.event(event)]
    except VendorError as error:
        if error.failure.kind is not FailureClass.PROTOCOL:
            raise
        if fold.is_ended:
            return []
        raise failed(FailureClass.SERVER, "the stream ended in the middle of an event") from None
    if not (fold.has_begun or fold.is_done):
        raise failed(FailureClass.SERVER, "the stream ended before its first event")
    return deltas


def _whole(body: bytes, content_type: str, fold: JsonFold) -> list[Delta]:
    """A reply in one piece: JSON, or not a reply."""
    shape = body_shape(body, content_type, at_end=True)
    if shape is BodyShape.EVENTS:
        reader = SseReader(len(body) + 1)
        return [delta for event in (*reader.feed(body), *reader.end()) for delta in fold.event(event)]
    if shape is BodyShape.JSON:
        with contextlib.suppress(ValueError, RecursionError):
            return fold.whole(parse_json(body.decode("utf-8-sig")))
    start = body[:200].decode("utf-8", "replace")
    raise failed(FailureClass.PROTOCOL, f"the answer ({content_type or 'of no type'}) is not an event stream: {start}")


async def _drain(chunks: AsyncGenerator[bytes, None]) -> None:
    """Read the little that may follow the last event; nothing after it counts."""
    with contextlib.suppress(TimeoutError, VendorError):
        async with asyncio.timeout(TAIL_S):
            async for _ in chunks:
                pass


async def read_body_start(reply: HttpReply, bytes_max: int, attempt: AttemptTimeout) -> bytes:
    """The beginning of a body; errors while reading it are ignored."""
    parts: list[bytes] = []
    size = 0
    with contextlib.suppress(VendorError):
        async with aclosing(reply.chunks()) as chunks:
            while size < bytes_max and (chunk := await attempt.wait(anext(chunks, None))) is not None:
                parts.append(chunk)
                size += len(chunk)
    return b"".join(parts)[:bytes_max]
