"""Plan items: validation, and the JSON text in which they are stored.

Source: rows AP08, AP09, AP16.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from turnwright_values.types import PlanItem, PlanPriority, PlanStatus

from turnwright_core.checks import check_chars, check_count, invalid
from turnwright_core.errors import InvalidError
from turnwright_core.json_text import JsonObject, parse_json
from turnwright_core.limits import (
    PATH_CHARS_MAX,
    PLAN_EVIDENCE_MAX,
    PLAN_ITEM_CHARS_MAX,
    PLAN_ITEMS_MAX,
)

E = TypeVar("E", bound=IntEnum)


def items_of(body: str) -> tuple[PlanItem, ...]:
    """The items of a body. Raises INVALID_FIELD or LIMIT_EXCEEDED for the first bad item: `items[2].status`."""
    found = _array(body)
    if found is None:
        raise invalid("body", "The body of a plan of items must be a JSON array of items.")
    check_count("items", len(found), PLAN_ITEMS_MAX)
    return tuple(_item(f"items[{at}]", one) for at, one in enumerate(found))


def readable_items(body: str) -> tuple[PlanItem, ...]:
    """The items of a body that may not have been validated; invalid items are left out."""
    items = []
    for one in _array(body) or ():
        try:
            items.append(_item("item", one))
        except InvalidError:
            continue
    return tuple(items[:PLAN_ITEMS_MAX])


def items_json(items: Iterable[PlanItem]) -> str:
    """The canonical body for these items: equal items give equal texts."""
    return json.dumps([_fields(item) for item in items], ensure_ascii=False)


def _fields(item: PlanItem) -> JsonObject:
    fields: JsonObject = {"content": item.content, "priority": word(item.priority), "status": word(item.status)}
    return {**fields, "evidence_paths": list(item.evidence_paths)} if item.evidence_paths else fields


def word(value: IntEnum) -> str:
    """The name of a value in JSON and in texts: `in_progress`."""
    return value.name.lower()


def words(kind: type[IntEnum]) -> tuple[str, ...]:
    """The names of all values but UNSPECIFIED."""
    return tuple(word(one) for one in kind if one)


def _array(text: str) -> list[object] | None:
    try:
        found = parse_json(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def _item(at: str, value: object) -> PlanItem:
    if not isinstance(value, dict):
        raise invalid(at, f"{at} must be an object with content, priority and status.")
    return PlanItem(
        _text(f"{at}.content", value.get("content"), PLAN_ITEM_CHARS_MAX),
        _named(f"{at}.priority", value.get("priority"), PlanPriority),
        _named(f"{at}.status", value.get("status"), PlanStatus),
        _evidence(f"{at}.evidence_paths", value.get("evidence_paths")),
    )


def _text(field: str, value: object, limit: int) -> str:
    """A non-empty text that can be stored: JSON can contain unpaired surrogates and NUL."""
    if not isinstance(value, str) or not value.strip():
        raise invalid(field, f"{field} must be a non-empty string.")
    check_chars(field, value, limit)
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise invalid(field, f"{field} contains NUL or an unpaired surrogate, which is not valid text.")
    return value


def _named(field: str, value: object, kind: type[E]) -> E:
    found = kind.__members__.get(value.upper()) if isinstance(value, str) and value == value.lower() else None
    if not found:
        names = ", ".join(words(kind))
        given = "it is missing" if value is None else f"it is {json.dumps(value)[:80]}"
        raise invalid(field, f"{field} must be one of {names}; {given}.")
    return found


def _evidence(field: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid(field, f"{field} must be a list of paths.")
    check_count(field, len(value), PLAN_EVIDENCE_MAX)
    return tuple(_text(f"{field}[{at}]", one, PATH_CHARS_MAX) for at, one in enumerate(value))
