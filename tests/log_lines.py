"""What a block logs, read back from a real log file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from turnwright_core.kit.logs import configure_logs


@contextlib.contextmanager
def logged(level: str = "debug") -> Iterator[list[dict]]:
    """The lines of the block, one dict each; complete when the block has ended."""
    lines: list[dict] = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "log"
        configure_logs(level, file)
        try:
            yield lines
        finally:
            configure_logs("warning")
            lines += map(json.loads, file.read_text().splitlines())
