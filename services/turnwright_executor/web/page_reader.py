"""Converts one HTML page to Markdown in a process of its own: HTML on standard input, at most so many bytes out.

    python -I page_reader.py ADDRESS BYTES < page.html > page.md

Pages are untrusted, and Markdown may be a thousand times the size of its HTML, for instance for a wide table. So this
process has resource limits, contains nothing but the page, and a crash costs only that page. It imports nothing of the
runtime.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress

MEMORY_BYTES_MAX = 1024 * 1024 * 1024
CPU_S_MAX = 20


def main(address: str, bytes_max: int) -> None:
    for kind, limit in ((resource.RLIMIT_AS, MEMORY_BYTES_MAX), (resource.RLIMIT_CPU, CPU_S_MAX)):
        # Some systems have a kind and cannot set it.
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from html_to_markdown import ConversionOptions, convert  # noqa: PLC0415 - within the limits

    options = ConversionOptions(extract_metadata=False, skip_images=True, base_url=address)
    text = (convert(sys.stdin.buffer.read().decode(), options).content or "").strip()
    sys.stdout.buffer.write(text[:bytes_max].encode()[:bytes_max])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
