"""Message size limits of callers: gRPC's default, unless the caller allows more.

A client that receives a longer message only gets an error of its own library, which does not say what to do.
"""

from __future__ import annotations

from turnwright_core.errors import Reason, fault
from turnwright_core.limits import STOCK_MESSAGE_BYTES_MAX
from turnwright_core.rpc.headers import RECEIVES
from turnwright_kit.scope import Metadata


def size_limit(metadata: Metadata) -> int:
    """The longest message that a caller accepts, in bytes; at most MESSAGE_BYTES_MAX, which any answer fits into."""
    header = dict(metadata).get(RECEIVES, "")
    return int(header) if isinstance(header, str) and header.isascii() and header.isdigit() else STOCK_MESSAGE_BYTES_MAX


def check_length(size: int, limit: int) -> None:
    if size > limit:
        problem = (
            f"The answer has {size} bytes, more than the {limit} that the call takes. Ask for less: a smaller page, no "
            f"bodies, a part of a body; or raise the client's limit and say so by the metadata `{RECEIVES}: {size}`."
        )
        raise fault(Reason.MESSAGE_TOO_LARGE, problem, limit=limit, actual=size, unit="bytes")
