"""What the calls of a process say of who makes them: a client sends its token, a service one of its own, if any.

A service makes its tokens from the secret, for each service that it calls, and anew long before they end; or it sends
none, where its certificate says who it is. It sends the secret itself only for its holder: nothing less proves that to
another process. Within one process nothing is sent; the channel hands the caller over.

For whom a service calls, the header `turnwright-for` says: a caller as JSON in base64url. Only services may send it,
and whoever holds the secret: it says who somebody is without proof. So a service that has been taken over can act for
everybody who may use it; it cannot act for the holder of the secret, nor for a service.
"""

from __future__ import annotations

import base64
import binascii
import time
from typing import Final, TypeVar

import msgspec
from msgspec import structs
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, fault
from turnwright_core.rpc.headers import AUTHORIZATION, call_metadata
from turnwright_kit.identity.caller import OPERATOR, Caller, Kind, Proof
from turnwright_kit.identity.own_tokens import DAY_S, TokenKey, make_token
from turnwright_kit.scope import TextMetadata

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


K = TypeVar("K")
V = TypeVar("V")

CERTIFICATE: Final = "certificate"
"""In place of a token: the service is known by the certificate of its connection, and sends none."""

NAMED_MAX: Final = 4096
"""Callers whose header is remembered."""


class Credentials:
    """The credentials of one process for the calls of one service."""

    def __init__(
        self,
        token: str,
        audience: str,
        tier: Tier | None = None,
        service: str = "",
        given: str = "",
        key: TokenKey | None = None,
    ) -> None:
        """Of a client with this token; or of a `service` with the `given` token, or else those that it makes.

        It makes them with the `key`, or that which `token`, the deployment's secret, has for the audience. A tier
        lowers that of the caller. Raises UNAUTHENTICATED for a token that no header can hold.
        """
        self._sent: TextMetadata = call_metadata(given or token, tier)
        if given == CERTIFICATE:
            self._sent = self._sent[1:]
        self._secret, self._tier, self._service = token, tier, service
        self._key = key or TokenKey.of(token, audience)
        self._is_given = bool(given)
        self._renewed_s = 0.0
        self._headers: dict[Caller, TextMetadata] = {}
        self._callers: dict[Caller | None, Caller] = {}

    def metadata(self, caller: Caller | None = None) -> TextMetadata:
        """The headers of a call, for somebody or for this process itself. Raises LIMIT_EXCEEDED."""
        if not self._service:
            return self._sent
        self._renew()
        if caller is None:
            return self._sent
        found = self._headers.get(caller)
        if found is None:
            sender = call_metadata(self._secret) if caller.is_root and not self._is_given else self._sent
            tokens = (header for header in sender if header[0] == AUTHORIZATION)
            found = _remember(self._headers, caller, (*tokens, header_of(caller)))
        return found

    def _renew(self) -> None:
        if self._is_given:
            return
        now_s = time.time()
        if not self._renewed_s <= now_s < self._renewed_s + DAY_S / 2:
            self._sent = call_metadata(make_token(self._key, self._service, Kind.SERVICE, DAY_S), self._tier)
            self._renewed_s = now_s
            self._headers.clear()

    def caller(self, caller: Caller | None) -> Caller:
        """Who makes a call within this process, for somebody or for the service itself."""
        found = self._callers.get(caller)
        if found is None:
            own = Caller(self._service, Kind.SERVICE, self._tier or Tier.SYSTEM, Proof.PROCESS)
            made = own if caller is None else structs.replace(caller, by=self._service)
            found = _remember(self._callers, caller, made)
        return found


def _remember(known: dict[K, V], key: K, value: V) -> V:
    if len(known) >= NAMED_MAX:
        del known[next(iter(known))]
    known[key] = value
    return value
