"""The vendor `scripted` replays written replies: `scripted/{name}` is the file `{name}.txt` in one folder.

The call's index selects the reply, so a conversation replays the same however often it is resumed. It needs no key and
no network. Source: architecture 8, 15; the format is described in domain/scripts.py.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace
from turnwright_values.provider import Finish
from turnwright_values.replies import ThinkingBlock, ToolCall
from turnwright_values.types import Capabilities, Usage

from turnwright_core.chat.deltas import (
    AppendContent,
    AppendReasoning,
    Delta,
    SetThinkingBlocks,
    SetToolCalls,
    SetUsage,
)
from turnwright_core.json_text import JsonObject
from turnwright_provider.domain.failures import FailureClass, VendorError, failed
from turnwright_provider.domain.model_call import ModelCall, VendorEvent
from turnwright_provider.domain.model_info import ModelInfo
from turnwright_provider.domain.scripts import ScriptedReply, ScriptError, parse_script
from turnwright_provider.ports import ModelCheck, VendorState

SCRIPT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Longest script, in bytes."""

SCRIPTS_KEPT: Final = 8
"""Scripts that are not read again while their files stay as they are."""

CHARS_PER_TOKEN: Final = 4
"""Characters per token for estimated usage."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
Sleep = Callable[[float], Awaitable[None]]
Version = tuple[int, int, int, int]
"""Device, inode, time of the last change and length of a file: another one once it was written to."""


class ScriptedVendor:
    """Replays the scripts in a folder; `sleep` takes seconds."""

    def __init__(self, folder: Path, sleep: Sleep) -> None:
        self._folder = folder
        self._sleep = sleep
        self._kept: dict[str, tuple[Version, tuple[ScriptedReply, ...]]] = {}

    def describe(self) -> VendorState:
        if self._folder.is_dir():
            return VendorState(str(self._folder))
        setting = "TURNWRIGHT_SCRIPTED_DIR"
        return VendorState(str(self._folder), f"{setting} names no folder: {self._folder}", (setting,))

    async def stream(self, call: ModelCall, attempt: int) -> AsyncGenerator[VendorEvent, None]:
        reply = await self._reply(call)
        if failure := reply.failure_of(attempt):
            raise VendorError(failure)
        if reply.after_ms:
            await self._sleep(reply.after_ms / 1000)
        for number, delta in enumerate(deltas_of(reply)):
            if number and reply.delay_ms:
                await self._sleep(reply.delay_ms / 1000)
            yield delta
        usage = _usage(call, reply)
        yield SetUsage(usage)
        yield Finish(reply.finish or _finish(reply), usage, call.model)

    async def check(self, models: Sequence[str]) -> list[ModelCheck]:
        return [await asyncio.to_thread(self._checked, model) for model in models]

    async def _reply(self, call: ModelCall) -> ScriptedReply:
        replies = self._known(call.model)
        if not replies:
            version, replies = await asyncio.to_thread(self._read, call.model)
            self._kept[call.model] = version, replies
            if len(self._kept) > SCRIPTS_KEPT:
                del self._kept[next(iter(self._kept))]
        if call.call_index >= len(replies):
            count = f"{len(replies)} {'reply' if len(replies) == 1 else 'replies'}"
            raise failed(FailureClass.INVALID, f"the script has only {count}, and call {call.call_index + 1} was made")
        return replies[call.call_index]

    def _known(self, model: str) -> tuple[ScriptedReply, ...]:
        """The replies of a script that was read and has not changed since; else none."""
        version, replies = self._kept.get(model, (None, ()))
        try:
            return replies if version and version == _version(self._path(model).stat()) else ()
        except OSError:
            return ()

    def _path(self, model: str) -> Path:
        return self._folder / f"{model}.txt"

    def _others(self) -> str:
        names = sorted(path.stem for path in self._folder.glob("*.txt"))[:20]
        return f"; there are {', '.join(names)}" if names else ""

    def _checked(self, model: str) -> ModelCheck:
        """A script accepts tools if it calls some."""
        try:
            _, replies = self._read(model)
        except VendorError as error:
            return ModelCheck(error.failure.detail)
        calls = any(section.kind == "call" for reply in replies for section in reply.sections or ())
        return ModelCheck(info=ModelInfo(capabilities=Capabilities(tools=calls)))

    def _read(self, model: str) -> tuple[Version, tuple[ScriptedReply, ...]]:
        if not _NAME.fullmatch(model):
            raise failed(FailureClass.INVALID, "a script's name has 1 to 64 characters out of A-Z a-z 0-9 _ and -")
        path = self._path(model)
        try:
            inside = path.resolve().is_relative_to(self._folder.resolve())
            found = path.stat()
            if not inside or found.st_size > SCRIPT_BYTES_MAX:
                raise failed(FailureClass.INVALID, f"{path.name} is outside of {self._folder} or over its size limit")
            return _version(found), parse_script(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise failed(FailureClass.INVALID, f"there is no {path.name} in {self._folder}{self._others()}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise failed(FailureClass.INVALID, f"{path.name} cannot be read: {error}") from None
        except ScriptError as error:
            raise failed(FailureClass.INVALID, f"{path.name}, {error}") from None


def _version(found: os.stat_result) -> Version:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def deltas_of(reply: ScriptedReply) -> Iterator[Delta]:
    """The reply as deltas; calls grow as with other vendors."""
    calls: list[ToolCall] = []
    for block, section in enumerate(reply.sections or ()):
        options = section.options
        if section.kind == "call":
            signature = options.get("signature", "")
            call = ToolCall(options["name"], "", len(calls), options.get("id", ""), "", signature, block)
            yield SetToolCalls((*calls, call))
            calls.append(replace(call, arguments=section.text))
            yield SetToolCalls(tuple(calls))
            continue
        append = AppendContent if section.kind == "text" else AppendReasoning
        for start in range(0, len(section.text), reply.chunk_chars):
            yield append(section.text[start : start + reply.chunk_chars])
        if section.kind == "thinking":
            yield SetThinkingBlocks((ThinkingBlock(**{"type": "thinking", **options}, index=block, text=section.text),))


def _finish(reply: ScriptedReply) -> str:
    return "tool_calls" if any(section.kind == "call" for section in reply.sections or ()) else "stop"


def _usage(call: ModelCall, reply: ScriptedReply) -> Usage:
    prompt = math.ceil(sum(len(message.text) for message in call.messages) / CHARS_PER_TOKEN)
    completion = math.ceil(sum(len(section.text) for section in reply.sections or ()) / CHARS_PER_TOKEN)
    figures: JsonObject = {"prompt_tokens": prompt, "completion_tokens": completion, **reply.usage}
    return Usage(total_tokens=figures["prompt_tokens"] + figures["completion_tokens"], **figures)
