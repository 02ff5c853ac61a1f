"""Names of what a write locks. Replicas lock the names of a batch in one order, so that none waits in a ring.

A run's name covers its row, its scope, its queue, its views and turns; a project's name covers its shared entries
and the making of runs in it.
Source: architecture 3 (a batch locks its scope rows in sorted order); docs/adr/0006.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnwright_core.entries import CopyEntry, EntryWrite, MoveEntry
from turnwright_core.text import scheme_of
from turnwright_store.domain.store_rules import StoreRules

GLOBAL_LOCK: Final = "global"
"""Entries of the global scope."""

REGISTRY_LOCK: Final = "registry"
"""Projects, models, schemes and executors."""

ANSWERS_LOCK: Final = "answers"
"""The forgetting of old answers to requests."""


def run_lock(project: str, run: str) -> str:
    return f"run:{project}/{run}"


def project_lock(project: str) -> str:
    return f"project:{project}"


def packets_lock(project: str) -> str:
    return f"packets:{project}"


def request_lock(project: str, principal: str, method: str, request_id: str) -> str:
    """The name of a request that may be repeated."""
    return f"request:{project}/{principal}/{method}/{request_id}"


def paths_of(writes: Iterable[EntryWrite]) -> set[str]:
    """Every path that writes touch: those that they name, and those that they copy or move to."""
    paths = set()
    for write in writes:
        paths.add(write.path)
        if isinstance(write.change, (CopyEntry, MoveEntry)):
            paths.add(write.change.to)
    return paths


def write_locks(rules: StoreRules, project: str, run: str, paths: Iterable[str]) -> set[str]:
    """What a write to entries of a run locks: the run, and the shared scopes that the schemes of the paths live in."""
    locks = {run_lock(project, run)}
    for scope in {rules.scheme(scheme or "").default_scope for scheme in set(map(scheme_of, paths))}:
        if scope == "project":
            locks.add(project_lock(project))
        elif scope == "global":
            locks.add(GLOBAL_LOCK)
    return locks
