"""For whom a query or a write is made, and for whom work is done later. Source: docs/adr/0066.

Private runs are there for few. Who looks is said once, where every rpc reaches the database (rpc.calls), so that no
statement that looks for a run is told it by each of its callers. What the store does of its own sees all.

Who asked for a loop or set a schedule is stored: what that person may do is decided when it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from typing import Final, TypeVar

from msgspec import Struct, json

from turnwright_kit.identity.caller import TIERS, Caller, Kind, Proof

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


class Asker(Struct, frozen=True, omit_defaults=True):
    """A caller at the moment of its call, without what proved it: a token that expires ends no work."""

    name: str
    kind: str = Kind.PERSON.value
    groups: tuple[str, ...] = ()
    root: bool = False
    projects: tuple[str, ...] | None = None


_DECODER = json.Decoder(Asker)


def asker_json(caller: Caller) -> str:
    limited_to = None if caller.projects is None else tuple(sorted(caller.projects))
    groups = tuple(sorted(caller.groups))
    return json.encode(Asker(caller.name, caller.kind.value, groups, caller.is_root, limited_to)).decode()


@lru_cache(maxsize=256)
def asker_of(text: str | None) -> Asker | None:
    """None for work of an earlier release, of which nobody knows who asked for it."""
    return _DECODER.decode(text) if text else None


def caller_of(asker: Asker) -> Caller:
    """Somebody as a caller, to ask what it may do now."""
    kind = Kind(asker.kind)
    proof = Proof.SECRET if asker.root else Proof.TOKEN
    limited_to = None if asker.projects is None else frozenset(asker.projects)
    return Caller(asker.name, kind, TIERS[kind], proof, frozenset(asker.groups), projects=limited_to)
