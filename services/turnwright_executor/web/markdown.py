"""HTML to Markdown in a separate process for each page, so that a hostile page can only harm that process.

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
    """An HTML page as Markdown, at most this many bytes: without scripts, menus, forms and images, links absolute.

    Cancelling kills the process. Raises WebError for a page that exceeds the limits.
    """
    reader = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", _READER, address, str(bytes_max)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        # Unpaired surrogates, which some charsets can decode to, are not valid text.
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
