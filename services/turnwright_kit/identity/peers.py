"""Callers by certificate: the URI in a connection's certificate names a peer, or a proxy that says whose call it is.

gRPC has verified the certificate, and hands over its URI. A proxy that `identity.toml` names tells of its client in the
header `x-forwarded-client-cert`, as Envoy writes it: what counts is the last element, which that proxy has added. From
anybody else the header counts for nothing. No proxy can vouch for a service, which may act for everybody, but the one
that stands in front of this service alone: the sidecar of a mesh, in the same pod, which connects in plaintext.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from turnwright_core.errors import TurnwrightError
from turnwright_kit.identity.caller import TIERS, Caller, Kind, Proof
from turnwright_kit.identity.identity_file import IdentitySettings
from turnwright_kit.identity.refusals import refusal

_URIS: Final = "peer_uri"
"""Where gRPC has the URIs of a verified certificate. Its list of all names would let a DNS name pass for one."""

_SECURITY: Final = "transport_security_type"
_SHOWN_CHARS: Final = 200
_PAIR: Final = re.compile(r'\s*([A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^",;]*)(?:([;,])|\Z)')

_NO_PROOF: Final = (
    "Send `authorization: Bearer <token>` with the token of this deployment (TURNWRIGHT_TOKEN), or connect with a "
    "certificate that its `identity.toml` names."
)


class PeerConnection(Struct, frozen=True):
    """What is known of a connection."""

    is_tls: bool
    uris: tuple[bytes, ...]
    """Those in its verified certificate."""
    is_of_sidecar: bool


class Peers:
    """The peers and the proxies of a deployment, by the URIs in their certificates."""

    def __init__(self, settings: IdentitySettings) -> None:
        self._callers = {
            one.uri: Caller(one.principal, one.kind, TIERS[one.kind], Proof.CERTIFICATE, frozenset(one.groups))
            for one in settings.peer
        }
        self._proxies = frozenset(one.uri for one in settings.proxy if one.uri)
        self._sidecars = tuple(_begin_of_peer(one.address) for one in settings.proxy if one.address)
        self._domains = {urlsplit(uri).netloc for uri in (*self._callers, *self._proxies)}

    def connection(self, context: Any) -> PeerConnection:
        known = context.auth_context()
        is_tls = tuple(known.get(_SECURITY, ())) == (b"ssl",)
        is_of_sidecar = not is_tls and bool(self._sidecars) and context.peer().startswith(self._sidecars)
        return PeerConnection(is_tls, tuple(known.get(_URIS, ())) if is_tls else (), is_of_sidecar)

    def caller(self, connection: PeerConnection, forwarded: str) -> Caller:
        """Who calls by a connection, with this header. Raises UNAUTHENTICATED."""
        if not (connection.is_tls or connection.is_of_sidecar):
            raise refusal("missing", _NO_PROOF)
        if connection.is_tls:
            uri = _only([one.decode(errors="replace") for one in connection.uris], "The certificate")
            if uri not in self._proxies:
                return self._named(uri)
        if not forwarded:
            raise refusal("missing", f"The proxy says of no certificate that its client has. {_NO_PROOF}")
        caller = self._named(_only(_uris_of_last(forwarded), "The certificate that the proxy has verified"))
        if caller.kind is Kind.SERVICE and not connection.is_of_sidecar:
            raise refusal("certificate", "Services connect by themselves: no proxy can vouch for one.")
        return Caller(caller.name, caller.kind, caller.tier, Proof.PROXY, caller.groups)

    def _named(self, uri: str) -> Caller:
        found = self._callers.get(uri)
        if found:
            return found
        raise self._unknown(uri)

    def _unknown(self, uri: str) -> TurnwrightError:
        """The error for a URI that no entry has: whose it is, a verified certificate says."""
        shown = uri[:_SHOWN_CHARS]
        if urlsplit(uri).netloc not in self._domains:
            why = "is of a trust domain that `identity.toml` does not name"
        else:
            why = "is that of no `[[peer]]` in `identity.toml`"
        return refusal("certificate", f"The URI {shown!r} of this certificate {why}. {_NO_PROOF}")


def _begin_of_peer(address: str) -> str:
    """What gRPC's name of a peer at an address of this host begins with."""
    return f"ipv6:%5B{address}%5D:" if ":" in address else f"ipv4:{address}:"


def _only(uris: Sequence[str], what: str) -> str:
    """The only URI. One of several might not be the one that its authority meant."""
    if len(uris) != 1:
        has = f"{len(uris)} URIs" if uris else "no URI"
        raise refusal(
            "certificate",
            f"{what} has {has} among its subject alternative names: one names a caller, such as "
            "`spiffe://example.com/ns/shop/sa/indexer`.",
        )
    return uris[0]


def _uris_of_last(forwarded: str) -> list[str]:
    """The URIs in the last element of the header. Raises UNAUTHENTICATED for one that is not well-formed."""
    found: list[str] = []
    at, separator = 0, ";"
    while separator:
        pair = _PAIR.match(forwarded, at)
        if pair is None:
            raise refusal("certificate", "The header `x-forwarded-client-cert` of the proxy is not well-formed.")
        key, value = pair[1], pair[2]
        if key.lower() == "uri":
            found.append(re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value)
        at, separator = pair.end(), pair[3] or ""
        if separator == ",":
            found.clear()
    return found
