"""A call in progress, whatever it is made with: what it shows meanwhile, what it asks people and models, and its end.

A question ends the Dispatch, and the call is held here until the next one has its answer, for at most HELD_S. If this
process or what it calls ends before, nobody knows what has become of the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final

from msgspec import Struct
from turnwright.tool.v1 import result_pb2

HELD_S: Final = 3600.0
"""Seconds that a call waits for an answer."""
QUESTIONS_MAX: Final = 16
"""Questions of a call that wait at a time; nobody is asked further ones."""
PROGRESS_CHARS_MAX: Final = 256 * 1024
"""Length of the progress that waits to be sent; more is left out."""
PROGRESS_ALL_CHARS_MAX: Final = 16 * 1024 * 1024
"""Length of all progress of a call: executors keep no more."""
HELD: Final = b"held"
"""The state of a question whose call is held here."""


class CallLostError(Exception):
    """Nobody knows what has become of a call. The text says why."""


class Question(Struct, frozen=True):
    """What a call asks a person before it goes on."""

    text: str
    state: bytes


HeldEvent = str | Question | result_pb2.ToolModelRequest | result_pb2.ToolResult
Given = str | result_pb2.ToolModelAnswer
"""What a call goes on with: the comment of a person, or what has come of a request to a model."""


class _Asked(Struct, frozen=True):
    of_model: bool
    text: Callable[[str], str]
    answer: Callable[[Any], Any]
    waiting: asyncio.Future[Any]


class HeldCall:
    """One call. Its owner iterates `events`, and ends it with `stop`."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[list[str] | HeldEvent | Exception] = asyncio.Queue()
        self._pieces: list[str] = []
        """Progress that goes on while nobody has taken its beginning."""
        self._chars = self._all_chars = self._left_out = 0
        self._working: asyncio.Task[None] | None = None
        self._asked: _Asked | None = None
        self._asking = asyncio.Lock()
        self._questions = 0

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Do the work, which tells by `happened` what it comes to."""
        self._working = asyncio.create_task(work, name=name)
        self._working.add_done_callback(lambda _: self.ended())

    def ended(self) -> None:
        """The work has ended, and nobody is asked for it any more."""
        if self._asked is not None and not self._asked.waiting.done():
            self._asked.waiting.set_result(None)

    def happened(self, event: Question | result_pb2.ToolModelRequest | result_pb2.ToolResult | Exception) -> None:
        self._pieces = []
        self._events.put_nowait(event)

    def progressed(self, text: str) -> None:
        if (
            not text
            or self._chars + len(text) > PROGRESS_CHARS_MAX
            or self._all_chars + len(text) > PROGRESS_ALL_CHARS_MAX
        ):
            self._left_out += len(text)
            return
        self._chars += len(text)
        self._all_chars += len(text)
        if not self._pieces:
            self._events.put_nowait(self._pieces)
        # Half of a surrogate pair, which JSON may have, can stand in no message.
        self._pieces.append(text.encode(errors="replace").decode())

    async def ask(self, text: Callable[[str], str], answer: Callable[[str], Any]) -> Any:
        """What somebody answers; None: nobody did in time, or too many questions wait.

        `text` is the question, with what was wrong with the last answer. `answer` makes one of a comment, or raises
        AnswerError.
        """
        return await self._ask(_Asked(False, text, answer, asyncio.get_running_loop().create_future()))

    async def ask_model(self, request: result_pb2.ToolModelRequest) -> result_pb2.ToolModelAnswer | None:
        """What has come of a request to a model; None: nothing in time, or too many wait."""
        request.state = HELD
        waiting = asyncio.get_running_loop().create_future()
        answer: result_pb2.ToolModelAnswer | None = await self._ask(
            _Asked(True, str, lambda given: given, waiting), request
        )
        return answer

    async def _ask(self, asked: _Asked, event: result_pb2.ToolModelRequest | None = None) -> Any:
        if self._questions >= QUESTIONS_MAX:
            return None
        self._questions += 1
        try:
            async with self._asking:
                return await self._asked_next(asked, event)
        finally:
            self._questions -= 1

    async def _asked_next(self, asked: _Asked, event: result_pb2.ToolModelRequest | None) -> Any:
        if self._working is None or self._working.done():
            return None
        self._asked = asked
        self.happened(event or self.question(""))
        try:
            async with asyncio.timeout(HELD_S):
                return await asked.waiting
        except TimeoutError:
            return None
        finally:
            self._asked = None

    def question(self, problem: str) -> Question:
        """The question of a held call, once more if there is a problem with the answer."""
        return Question(self._asked.text(problem) if self._asked else problem, HELD)

    def answer(self, given: Given) -> None:
        """Go on with a held call. Raises AnswerError, and then it is still held."""
        if self._asked is None or self._asked.of_model == isinstance(given, str):
            # What it had asked is over, and what came then is its next event.
            return
        answer = self._asked.answer(given)
        if not self._asked.waiting.done():
            self._asked.waiting.set_result(answer)

    async def events(self) -> AsyncGenerator[HeldEvent, None]:
        """What happens up to the next question or the result. Raises CallLostError."""
        while True:
            event = await self._events.get()
            if isinstance(event, list):
                text, self._pieces = "".join(event), []
                self._chars -= len(text)
                yield text
                continue
            if isinstance(event, Exception):
                raise event
            if self._left_out:
                left_out, self._left_out = self._left_out, 0
                yield f"({left_out} characters of progress are left out)\n"
            yield event
            return

    async def stop(self) -> None:
        """End it; what it calls is told."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait((self._working,))
