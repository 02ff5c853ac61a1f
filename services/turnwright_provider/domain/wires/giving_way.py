"""Over which field of a request a server refused it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from turnwright_provider.domain.error_body import read_error_bytes

_REFUSALS: Final = ("unsupported", "not support", "unknown", "unrecognized", "unexpected", "extra", "not permitted",
                    "not allowed", "unknown_parameter", "invalid", "only", "instead", "deprecated",
                    "must be explicitly")  # fmt: skip


def named_in_refusal(status: int, answer: bytes, candidates: Mapping[str, tuple[str, ...]]) -> str | None:
    """The first field one of whose words a refusal names; None for any other answer."""
    if status not in (400, 422):
        return None
    error = read_error_bytes(answer)
    words = f"{error.param} {error.code} {error.message}".lower()
    if not any(refusal in words for refusal in _REFUSALS):
        return None
    return next((field for field, names in candidates.items() if any(name in words for name in names)), None)
