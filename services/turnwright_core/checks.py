"""Limits on the fields of a request: each error names the field, the limit and the actual size."""

from __future__ import annotations

from turnwright_core.errors import Reason, TurnwrightError, fault


def check_chars(field: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise over_limit(field, limit, len(text), "characters")


def check_words(field: str, text: str, limit: int) -> None:
    """Refuse a short text of more than `limit` code points, or with NUL, which not every database can store."""
    check_chars(field, text, limit)
    if "\x00" in text:
        raise invalid(field, f"{field} contains a NUL character.")


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


def transition_forbidden(kind: str, source: object, target: object, message: str) -> Exception:
    """The error for a transition that the state does not allow."""
    return fault(Reason.TRANSITION_FORBIDDEN, message, **{"from": source, "to": target, "object": kind})
