"""`runs export`: a run as a document in a file, or on standard output."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from turnwright_cli.exit_codes import DONE, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import answer, guarded_stdout, while_read
from turnwright_cli.plain import safe_line
from turnwright_cli.reading import STDIN
from turnwright_cli.run_list import open_run
from turnwright_kit.private_files import replacing_atomically


async def export_run(call: Invocation, *, run: str, output: str, without_files: bool) -> int:
    async with open_run(call, run, reads=True) as (client, project, found):
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


@contextlib.contextmanager
def _file(path: Path) -> Iterator[Callable[[bytes], int]]:
    """Writes a file that has its name only once it is whole. Raises FailureError if it cannot be written."""
    try:
        with replacing_atomically(path) as scratch, scratch.open("wb") as file:
            yield file.write
    except OSError as error:
        raise usage(f"{safe_line(str(path))} cannot be written: {error.strerror}.") from None
