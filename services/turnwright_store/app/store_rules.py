"""Rules that can change at run time: schemes of plugins, and file constraints of projects.

Source: rows RU084-RU087, RU112, RU116, RU117; decision C7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright.types.v1 import scheme_pb2
from turnwright_values.types import FileConstraint

from turnwright_core.checks import check_chars, check_count, invalid
from turnwright_core.constraints import leaves_the_project
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import (
    FILE_CONSTRAINTS_MAX,
    FILE_PATTERNS_MAX,
    PAGE_SIZE_MAX,
    PATTERN_CHARS_MAX,
    SCHEMES_MAX,
)
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.matching import match
from turnwright_core.patterns.shapes import Shape, shape_of
from turnwright_core.schemes import BY_NAME, Scheme
from turnwright_core.wire.schemes import registry_to_pb
from turnwright_store.app.maintenance import Chore
from turnwright_store.domain.checks import check_name, page_size
from turnwright_store.domain.pages import decode_page_token, page_of
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import registry
from turnwright_store.sql import rules as rows
from turnwright_store.sql.scopes import bump_scope

SCHEME_NAME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,31}")


def set_scheme(tx: Transaction, rules: StoreRules, wanted: Scheme) -> list[Scheme]:
    """Register or change a scheme; returns all schemes. Raises SCHEME_FIXED.

    It increments the global scope's revision, like every change that all runs share.
    """
    check_scheme(wanted)
    known = {scheme.name: scheme for scheme in registry.list_schemes(tx.connection)}
    old = known.get(wanted.name) or Scheme(wanted.name)
    is_moved = (old.default_scope, old.category) != (wanted.default_scope, wanted.category)
    if is_moved and rows.is_scheme_used(tx.connection, wanted.name):
        raise fault(
            Reason.SCHEME_FIXED,
            f"There are entries of {wanted.name}:// already; they are {old.default_scope}-scoped {old.category}, and "
            "stay so: register another name.",
            scheme=wanted.name,
        )
    check_count("schemes", len({*known, wanted.name}), SCHEMES_MAX)
    registry.put_schemes(tx.connection, [wanted])
    bump_scope(tx, rules.global_scope)
    return registry.list_schemes(tx.connection)


def with_schemes(rules: StoreRules, schemes: Iterable[Scheme]) -> StoreRules:
    known = {scheme.name: scheme for scheme in schemes}
    return replace(rules, schemes=known, schemes_version=registry_to_pb(known.values()).version)


def newer_schemes(rules: StoreRules, version: str) -> scheme_pb2.SchemeRegistry | None:
    """The registered schemes; None if the caller has this version."""
    return None if rules.schemes_version == version else registry_to_pb(rules.schemes.values())


class SchemeCache(Protocol):
    """The schemes that this process currently uses."""

    @property
    def rules(self) -> StoreRules:
        """Rules for every transaction; replaced as a whole."""

    def update(self, schemes: Iterable[Scheme]) -> None:
        """Use these schemes from now on."""


def schemes_refresh(database: Database, cache: SchemeCache, every_s: float) -> Chore:
    """The chore that reads what other replicas have registered."""

    async def step() -> bool:
        before = cache.rules
        found = await database.read(registry.list_schemes)
        # A scheme that was registered here meanwhile is newer than what was read.
        if cache.rules is before and {scheme.name: scheme for scheme in found} != before.schemes:
            cache.update(found)
        return False

    return Chore("schemes", every_s, step, follows=database)


def check_scheme(scheme: Scheme) -> None:
    """Refuse a malformed or built-in scheme. Raises InvalidError, SCHEME_FIXED."""
    if scheme.name in BY_NAME:
        message = f"The scheme {scheme.name!r} is built in and cannot be changed: register another name."
        raise fault(Reason.SCHEME_FIXED, message, scheme=scheme.name)
    check_name("name", scheme.name, SCHEME_NAME)


def set_constraints(
    tx: Transaction, project: str, wanted: Sequence[FileConstraint], removed: Sequence[str]
) -> list[FileConstraint]:
    """The stored constraints; of two with the same pattern the last one counts. Raises LIMIT_EXCEEDED.

    Those with the patterns in `removed` are removed first; unknown patterns are ignored.
    """
    check_count("constraints", len(wanted), PAGE_SIZE_MAX)
    check_count("remove_patterns", len(removed), PAGE_SIZE_MAX)
    for one in wanted:
        check_pattern(one.pattern)
    stored = [replace(one, create_ms=tx.now_ms) for one in wanted]
    owner = registry.get_project(tx.connection, project)
    rows.remove_constraints(tx.connection, owner.id, [pattern for pattern in removed if "\x00" not in pattern])
    rows.put_constraints(tx.connection, owner.id, list({one.pattern: one for one in stored}.values()))
    check_count("constraints", rows.count_constraints(tx.connection, owner.id), FILE_CONSTRAINTS_MAX)
    if any(map(_is_tried, stored)):
        all_stored = rows.list_constraints(tx.connection, owner.id, "", FILE_CONSTRAINTS_MAX)
        check_count("patterns", sum(map(_is_tried, all_stored)), FILE_PATTERNS_MAX)
    return stored


def _is_tried(constraint: FileConstraint) -> bool:
    """Whether a constraint must be matched against every path; an exact path is looked up."""
    return shape_of(constraint.pattern) is not Shape.LITERAL


def check_pattern(pattern: str) -> None:
    """Refuse an unusable pattern. Raises InvalidError."""
    check_chars("pattern", pattern, PATTERN_CHARS_MAX)
    # PostgreSQL text cannot contain NUL, and no path does.
    if not pattern or "\x00" in pattern or shape_of(pattern) in (Shape.XPATH, Shape.JSONPATH):
        raise invalid("pattern", f"pattern must be a glob, a /regex/ or an exact path; it is {pattern!r}.")
    if leaves_the_project(pattern):
        raise invalid("pattern", f"pattern must stay below the project's root, without .. and no / first: {pattern!r}.")
    try:
        match(pattern, "a")
    except PatternError as error:
        raise invalid("pattern", str(error)) from None


def list_constraints(connection: Connection, project: str, size: int, token: str) -> tuple[list[FileConstraint], str]:
    """A page of a project's constraints, sorted by pattern."""
    size = page_size(size)
    (after,) = decode_page_token(token, str) or ("",)
    owner = registry.get_project(connection, project)
    found = rows.list_constraints(connection, owner.id, str(after), size + 1)
    return page_of(found, size, lambda one: (one.pattern,), lambda one: len(one.pattern.encode()))
