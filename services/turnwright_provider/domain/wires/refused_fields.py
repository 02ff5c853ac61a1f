"""The field because of which a server refused a request."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from turnwright_provider.domain.error_body import read_error_bytes

if TYPE_CHECKING:
    from turnwright_provider.domain.model_call import ModelCall
    from turnwright_provider.domain.wires.wire import Wire

_REFUSALS: Final = ("unsupported", "not support", "unknown", "unrecognized", "unexpected", "extra", "not permitted",
                    "not allowed", "unknown_parameter", "invalid", "only", "instead", "deprecated",
                    "must be explicitly", "maximum allowed")  # fmt: skip


def refused_field(
    wire: Wire, status: int, answer: bytes, call: ModelCall, without: AbstractSet[str] = frozenset()
) -> str | None:
    """The optional field because of which a server refused a request; None for any other refusal.

    The request was sent `without` these fields.
    """
    if status not in (400, 422):
        return None
    error = read_error_bytes(answer)
    words = f"{error.param} {error.code} {error.message}".lower()
    # An error in a message is not fixed by dropping another field.
    if error.message.startswith("messages.") or not any(refusal in words for refusal in _REFUSALS):
        return None
    named = (field for field, names in wire.names_in_errors.items() if any(name in words for name in names))
    sent = wire.droppable_fields(call) - without
    return next((field for field in named if field in sent), None)
