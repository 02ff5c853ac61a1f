"""Conversion of builtin values to a type that msgspec has prepared while the module was imported.

msgspec prepares a struct type at its first use, and lets other threads see it before its fields are complete: two
threads that use a type for the first time in the same moment end the process by a segmentation fault. So decoders and
converters are constants of their modules, and no thread prepares anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec import convert, json

T = TypeVar("T")


def converter(kind: type[T]) -> Callable[[object], T]:
    """The function that converts to a type, which is prepared now."""
    json.Decoder(kind)
    return partial(convert, type=kind)
