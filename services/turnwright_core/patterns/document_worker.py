"""The worker process for XPath and JSONPath: one line of JSON for each question, and one for its answer.

A question is `[shape, pattern]` to validate the pattern, `[shape, pattern, text]` to select, or `[shape, pattern, text,
replacement]` to replace. The answer is a list with one item, the text selected (null: none) or replaced; null if the
text is not a document; or an object with the reason and detail of a PatternError.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

from turnwright_core.patterns import jsonpath, xpath
from turnwright_core.patterns.bounds import PATTERN_TIMEOUT_S
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.shapes import Shape

MEMORY_BYTES_MAX = 512 * 1024 * 1024


def main() -> None:
    """Answer questions until the input ends. A CPU limit ends the process (SIGPROF)."""
    for kind, limit in ((resource.RLIMIT_AS, MEMORY_BYTES_MAX), (resource.RLIMIT_CORE, 0)):
        # Some systems define this limit but cannot set it.
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (limit, limit))
    for line in sys.stdin:
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, PATTERN_TIMEOUT_S)
        answer = _answer(*question)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _answer(shape: str, pattern: str, *texts: str) -> Any:
    engine = xpath if Shape(shape) is Shape.XPATH else jsonpath
    try:
        match texts:
            case ():
                engine.check(pattern)
                return []
            case (text,):
                selected = engine.select(pattern, text)
                return [selected.first] if selected.document else None
            case (text, replacement):
                replaced = engine.replace(pattern, replacement, text)
                return None if replaced is None else [replaced]
    except PatternError as error:
        return {"reason": error.reason, "detail": error.detail}
    except (MemoryError, RecursionError):
        return {"reason": "too_large", "detail": "The document is too deep or too large for it; use a regex"}


if __name__ == "__main__":
    main()
