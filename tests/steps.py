"""Work counted in lines of Python, which neither the machine's speed nor its load changes."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(work: Callable[[], object]) -> int:
    """Lines of our services' code that `work` executes in this thread.

    The garbage collector waits: what it calls when an object goes belongs to whoever made the object.
    """
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_globals.get("__name__", "").startswith("turnwright_"):
            return None
        count += event == "line"
        return trace

    was_enabled = gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
        if was_enabled:
            gc.enable()
    return count
