"""What a block logs, read back from a real log file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from turnwright_kit.logs import configure_logs


class Lines(list[dict]):
    """Lines of a log file, one dict each."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def read(self) -> None:
        """Read what is there by now. A line that is being written waits."""
        self[:] = map(json.loads, self.file.read_text().rpartition("\n")[0].splitlines())


@contextlib.contextmanager
def logged(level: str = "debug") -> Iterator[Lines]:
    """The lines of the block; complete when the block has ended."""
    with TemporaryDirectory() as folder:
        lines = Lines(Path(folder) / "log")
        configure_logs(level, lines.file)
        try:
            yield lines
        finally:
            configure_logs("warning")
            lines.read()
