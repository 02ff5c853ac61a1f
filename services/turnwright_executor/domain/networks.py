"""Allowed network addresses for fetching pages: public ones, and networks that the operator lists (SSRF protection).

A model's text decides what is fetched, and a page may influence the model: an address inside the operator's network
must not be reachable this way. Source: architecture 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

IpAddress = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Public by its number, but it is the host of a virtual machine, which hands out credentials.
_HOST_SERVICES: Final = frozenset({IPv4Address("168.63.129.16")})
# Special-purpose ranges that not every version of Python knows; clouds put their metadata service into the first.
_SPECIAL: Final[tuple[Network, ...]] = (
    IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"), IPv6Network("64:ff9b:1::/48"), IPv6Network("3fff::/20"),
)  # fmt: skip
_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV4_BITS: Final = 0xFFFF_FFFF


def networks_of(text: str) -> tuple[Network, ...]:
    """The networks in a setting: `10.0.0.0/8,fd00::/8`; a single address is a network of one.

    Raises ValueError with a sentence.
    """
    try:
        return tuple(ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ValueError(f"must be networks with commas between, such as 10.0.0.0/8: {error}") from None


def may_be_reached(address: str, allowed: Sequence[Network]) -> bool:
    """Whether pages may be fetched from an IP address. Raises ValueError if it is not one."""
    named = _embedded(ip_address(address))
    return is_public(named) or _is_in(named, allowed)


def is_public(address: IpAddress) -> bool:
    """Whether an address is on the public internet: not local, private or multicast."""
    if isinstance(address, IPv6Address) and address.is_site_local:
        return False
    is_special = address.is_multicast or address.is_reserved or address in _HOST_SERVICES or _is_in(address, _SPECIAL)
    return address.is_global and not is_special


def _is_in(address: IpAddress, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _embedded(address: IpAddress) -> IpAddress:
    """The IPv4 address embedded in an IPv6 one, else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & _IPV4_BITS)
    return address.ipv4_mapped or address.sixtofour or address
