"""Limits on the fields of a request: each error names the field, the limit and the actual size."""

from __future__ import annotations

from turnwright_core.errors import Reason, TurnwrightError, fault


def check_chars(field: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise over_limit(field, limit, len(text), "characters")


def check_bytes(field: str, text: str, limit: int) -> None:
    """Raise LIMIT_EXCEEDED for a text of more than `limit` bytes of UTF-8."""
    # No code point takes more than four bytes.
    if len(text) * 4 > limit and (actual := len(text.encode())) > limit:
        raise over_limit(field, limit, actual, "bytes")


def check_count(field: str, actual: int, limit: int) -> None:
    if actual > limit:
        raise over_limit(field, limit, actual, "items")


def over_limit(field: str, limit: int, actual: int, unit: str) -> TurnwrightError:
    message = f"{field} has {actual} {unit}; the limit is {limit}."
    return fault(Reason.LIMIT_EXCEEDED, message, field=field, limit=limit, actual=actual, unit=unit)


def invalid(field: str, message: str) -> TurnwrightError:
    return fault(Reason.INVALID_FIELD, message, field=field)
