"""Lock names for writes. Replicas lock the names of a batch in one order, so they cannot deadlock.

A run's name covers its row, its scope, its queue, its views and turns; a project's name covers its shared entries and
the creation of runs in it. Source: architecture 3 (a batch locks its scope rows in sorted order); docs/adr/0006.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnwright_values.store import EntryWrite

from turnwright_core.entries import destination_of
from turnwright_core.text import scheme_of
from turnwright_store.domain.store_rules import StoreRules

GLOBAL_LOCK: Final = "global"
"""Entries of the global scope."""

REGISTRY_LOCK: Final = "registry"
"""Projects, models, schemes and executors."""

ANSWERS_LOCK: Final = "answers"
"""Deletion of old answers to requests."""

AUDIT_LOCK: Final = "audit"
"""Deletion of old rows of the audit."""

POLICY_LOCK: Final = "policy"
"""Grants and tokens, rules and quotas: all that the policy consists of."""

QUOTAS_LOCK: Final = "quotas"
"""What is used and reserved of quotas; without it replicas would only wait for each other's rows, in any order."""

NAMES_LOCK: Final = "names"
"""Deletion of old changes of the names of runs."""


WEBHOOKS_LOCK: Final = "webhooks"
"""Webhooks, and the attempts to send what they are told."""


TOOL_SERVERS_LOCK: Final = "tool_servers"
"""Servers of tools, and how many of them there are."""


def run_lock(project: str, run: str) -> str:
    return f"run:{project}/{run}"


def project_lock(project: str) -> str:
    return f"project:{project}"


def packets_lock(project: str) -> str:
    return f"packets:{project}"


def request_lock(project: str, principal: str, method: str, request_id: str) -> str:
    return f"request:{project}/{principal}/{method}/{request_id}"


def paths_of(writes: Iterable[EntryWrite]) -> list[str]:
    """Every path that writes touch, in their order: those that they name, and destinations of copies and moves."""
    return [path for write in writes for path in (write.path, destination_of(write.change)) if path is not None]


def write_locks(rules: StoreRules, project: str, run: str, paths: Iterable[str]) -> set[str]:
    """The locks for a write to a run: the run, and the shared scopes of the schemes of its paths."""
    locks = {run_lock(project, run)}
    scopes = {rules.scheme(scheme or "").default_scope for scheme in set(map(scheme_of, paths))}
    if "project" in scopes:
        locks.add(project_lock(project))
    if "global" in scopes:
        locks.add(GLOBAL_LOCK)
    return locks
