"""`runs export` and `runs import`: a run as a document or a page, in a file, on a standard output or input."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from turnwright_cli.exit_codes import DONE, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import answer, complain, guarded_stdout, while_read
from turnwright_cli.plain import safe_line
from turnwright_cli.reading import STDIN
from turnwright_cli.run_list import open_run
from turnwright_cli.session import open_project
from turnwright_cli.status_words import turns_words
from turnwright_client import Client
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.private_files import replacing_atomically


async def export_run(call: Invocation, *, run: str, output: str, without_files: bool, html: bool) -> int:
    if html and without_files:
        raise usage("--without-files: a page has no contents of project files. Leave this option out.")
    # Packets are explained by assembling them again.
    async with open_run(call, run, *(["assembler"] if html else []), reads=True) as (client, project, found):
        if html:
            parts = _page(client, project, found.run)
        else:
            parts = client.export_run(project, found.run, without_files=without_files)
        if output == STDIN:
            stream, decode = guarded_stdout(), codecs.getincrementaldecoder("utf-8")().decode
            async for part in while_read(parts):
                stream.write(decode(part))
            stream.flush()
            return DONE
        size = 0
        with _file(Path(output)) as write:
            async with contextlib.aclosing(parts):
                async for part in parts:
                    size += write(part)
    return answer(call, [found], f"{safe_line(found.run)}: written to {safe_line(output)}, {size / 1e6:,.1f} MB")


async def _page(client: Client, project: str, run: str) -> AsyncGenerator[bytes, None]:
    from turnwright_cli.run_page import page_of

    yield (await page_of(client, project, run)).encode()


async def import_run(call: Invocation, *, file: str, run: str) -> int:
    with _opened(file) as source:
        async with open_project(call) as (client, project):
            made = await client.import_run(project, _parts(source), run=run)
    for problem in made.problems:
        complain(f"left out {safe_line(problem.place)}: {safe_line(problem.problem)}")
    if made.skipped > len(made.problems):
        complain(f"left out {made.skipped - len(made.problems)} more")
    left_out = f", {made.skipped} left out" if made.skipped else ""
    return answer(call, [made], f"{safe_line(made.run.run)}: {turns_words(made.run.turn)}{left_out}")


def _opened(file: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """Raises FailureError if it cannot be read."""
    if file == STDIN:
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise usage(f"{safe_line(file)} cannot be read: {error.strerror}.") from None


async def _parts(source: BinaryIO) -> AsyncGenerator[bytes, None]:
    # Standard input may be slow, and the services of this process go on meanwhile.
    while part := await asyncio.to_thread(source.read, CHUNK_BYTES):
        yield part


@contextlib.contextmanager
def _file(path: Path) -> Iterator[Callable[[bytes], int]]:
    """Writes a file that has its name only once it is whole. Raises FailureError if it cannot be written."""
    try:
        with replacing_atomically(path) as scratch, scratch.open("wb") as file:
            yield file.write
    except OSError as error:
        raise usage(f"{safe_line(str(path))} cannot be written: {error.strerror}.") from None
