"""HTML as Markdown, by a process of its own for each page: what a page does to its reader, it does to nobody else.

Source: architecture 10; row RU179.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from turnwright_executor.tools.ports import WebError

_READER: Final = str(Path(__file__).with_name("page_reader.py"))


async def markdown_of(text: str, address: str, bytes_max: int) -> bytes:
    """An HTML page as Markdown, at most so many bytes: without scripts, menus, forms and pictures, links made whole.

    Cancelling ends the process. Raises WebError for a page that is too much to be read.
    """
    reader = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", _READER, address, str(bytes_max)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        # Halves of characters, which some charsets can hold, are no text for others.
        markdown, _ = await reader.communicate(text.encode("utf-8", "replace"))
    finally:
        if reader.returncode is None:
            reader.kill()
            await reader.wait()
    if reader.returncode:
        raise WebError(
            "unsupported:415", "The page is too much to be read as text. Look for another that says the same."
        )
    return markdown
