"""Limits on the fields of a request: each refusal names the field, the limit and what was given."""

from __future__ import annotations

from turnwright_core.errors import Reason, TurnwrightError, fault


def check_chars(field: str, text: str, limit: int) -> None:
    """Refuse a text of more than `limit` code points."""
    if len(text) > limit:
        raise over_limit(field, limit, len(text), "characters")


def check_bytes(field: str, text: str, limit: int) -> int:
    """The length of a text in bytes of UTF-8; refused over `limit`."""
    actual = len(text.encode())
    if actual > limit:
        raise over_limit(field, limit, actual, "bytes")
    return actual


def check_count(field: str, actual: int, limit: int) -> None:
    """Refuse a list of more than `limit` items."""
    if actual > limit:
        raise over_limit(field, limit, actual, "items")


def over_limit(field: str, limit: int, actual: int, unit: str) -> TurnwrightError:
    """What a caller is told of a field that is too long."""
    message = f"{field} has {actual} {unit}; the limit is {limit}."
    return fault(Reason.LIMIT_EXCEEDED, message, field=field, limit=limit, actual=actual, unit=unit)


def invalid(field: str, message: str) -> TurnwrightError:
    """What a caller is told of a field that is missing or malformed."""
    return fault(Reason.INVALID_FIELD, message, field=field)
