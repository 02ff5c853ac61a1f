"""`!command` in a session: the person's shell runs it on this host. The model reads its output only if asked to."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from turnwright_cli.keyboard import make_blocking
from turnwright_core.text import cut_bytes

OUTPUT_BYTES_MAX: Final = 64 * 1024
"""Output that is kept for the model; the rest is only shown."""

_CHUNK_BYTES: Final = 4096


async def run_locally(command: str, root: Path, show: Callable[[str], None] | None = None) -> tuple[int, str]:
    """The exit code, and with `show` what was written: it is shown piece by piece, or else by the command itself.

    Ctrl-C is for the command.
    """
    make_blocking()
    out, errors = (asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT) if show else (None, None)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    try:
        shell = os.environ.get("SHELL") or "/bin/sh"
        process = await asyncio.create_subprocess_exec(shell, "-c", command, cwd=root, stdout=out, stderr=errors)
        written = await _shown(process.stdout, show) if process.stdout and show else ""
        return await process.wait(), written
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        make_blocking()


async def _shown(stream: asyncio.StreamReader, show: Callable[[str], None]) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    written = ""
    while data := await stream.read(_CHUNK_BYTES):
        text = decoder.decode(data)
        show(text)
        written = cut_bytes(written + text, OUTPUT_BYTES_MAX)
    return written
