"""For whom a service calls: the header `turnwright-for`, a caller as JSON in base64url.

Only services may send it, and whoever holds the secret: it says who somebody is without proof. So a service that has
been taken over can act for everybody who may use it; it cannot act for the holder of the secret, nor for a service.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec
from msgspec import structs

from turnwright_core.errors import Reason, fault
from turnwright_kit.identity.caller import OPERATOR, Caller, Kind

FOR: Final = "turnwright-for"

FOR_BYTES_MAX: Final = 12 * 1024
"""Maximum length of the header, in bytes; beyond it gRPC would refuse the call, by chance."""

_decoder: Final = msgspec.json.Decoder(Caller)


def header_of(caller: Caller) -> tuple[str, str]:
    """The header that names a caller. Raises LIMIT_EXCEEDED for one with too many groups."""
    text = base64.urlsafe_b64encode(msgspec.json.encode(structs.replace(caller, by=""))).decode()
    if len(text) > FOR_BYTES_MAX:
        raise fault(
            Reason.LIMIT_EXCEEDED,
            f"With its {len(caller.groups)} groups the caller takes {len(text)} bytes, and services pass on at most "
            f"{FOR_BYTES_MAX}: have its issuer put fewer groups into tokens for Turnwright.",
            field=FOR, limit=FOR_BYTES_MAX, actual=len(text), unit="bytes",
        )  # fmt: skip
    return FOR, text


def caller_for(sender: Caller, text: str) -> Caller:
    """Whom a sender calls for. Raises RIGHT_MISSING, INVALID_FIELD."""
    if not sender.is_trusted:
        raise fault(
            Reason.RIGHT_MISSING,
            f"Only services act for others: leave out `{FOR}`.",
            right="service",
            project="",
        )
    try:
        caller = _decoder.decode(base64.b64decode(text, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        raise fault(Reason.INVALID_FIELD, f"`{FOR}` is not a caller as services name them.", field=FOR) from None
    is_roots = caller.is_root or caller.name == OPERATOR
    if not caller.name or caller.kind is Kind.SERVICE or (is_roots and not sender.is_root):
        raise fault(
            Reason.RIGHT_MISSING,
            f"`{FOR}` names nobody for whom {sender.name} may act: no service, and no holder of the secret.",
            right="service",
            project="",
        )
    return structs.replace(caller, by=sender.name)
