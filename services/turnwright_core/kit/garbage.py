"""The search for garbage, and when it is not worth its time."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Load modules in the block without a search; what is there at its end is never searched again.

    Modules live as long as the process, and there are so many of their objects that each full search takes as long as
    several turns.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
