"""For whom a query or a write is made: private runs are there for few. Source: docs/adr/0066.

It is said once, where every rpc reaches the database (rpc.calls), so that no statement that looks for a run is told it
by each of its callers. What the store does of its own sees all.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeVar

from msgspec import Struct

T = TypeVar("T")
On = TypeVar("On")


class Viewer(Struct, frozen=True):
    """A caller that does not see the private runs of others in every project."""

    name: str
    sees_all: Callable[[str], bool]
    """Whether it sees them in a project, by name, at this moment."""


_viewer: Final[ContextVar[Viewer | None]] = ContextVar("turnwright_viewer", default=None)


def viewing(viewer: Viewer, work: Callable[[On], T], on: On) -> T:
    before = _viewer.set(viewer)
    try:
        return work(on)
    finally:
        _viewer.reset(before)


def viewer_in(project: str) -> str | None:
    """Whose private runs are there in a project, by name; None: everybody's."""
    viewer = _viewer.get()
    return None if viewer is None or viewer.sees_all(project) else viewer.name
