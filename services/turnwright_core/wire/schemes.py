"""Protobuf conversion of schemes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from turnwright.types.v1 import scheme_pb2
from turnwright_values.types import Tier

from turnwright_core.checks import invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.schemes import BY_NAME, CATEGORIES, SCOPES, Scheme, Schemes
from turnwright_core.wire.codec import FieldCodec, codec, known


def _named(field: str, names: tuple[str, ...]) -> FieldCodec:
    """Codec of a field whose enum has these names in this order, from 1 on."""

    def number(name: str) -> int:
        if name not in names:
            raise invalid(field, f"{field} must be one of {', '.join(names)}; it is {name!r}.")
        return names.index(name) + 1

    return number, lambda number: names[number - 1]


_CATEGORY: Final = _named("category", CATEGORIES)
_SCOPE: Final = _named("default_scope", SCOPES)
scheme_to_pb, _ = codec(
    Scheme, scheme_pb2.Scheme, category=_CATEGORY, default_scope=_SCOPE, writable_by=(sorted, frozenset)
)


def categories_from_pb(numbers: Sequence[int]) -> frozenset[str]:
    """The categories that a request names. Raises InvalidError."""
    if 0 in numbers:
        raise invalid("categories", "categories names what no scheme has.")
    return frozenset(map(_CATEGORY[1], numbers))


def scheme_from_pb(scheme: scheme_pb2.Scheme) -> Scheme:
    """Decode a scheme; defaults are those of an unregistered scheme (RU085). Raises InvalidError."""
    default = Scheme(scheme.name)
    return Scheme(
        scheme.name,
        _CATEGORY[1](scheme.category) if scheme.category else default.category,
        _SCOPE[1](scheme.default_scope) if scheme.default_scope else default.default_scope,
        frozenset(_tier(value) for value in scheme.writable_by) or default.writable_by,
        scheme.model_visible,
    )


def registry_to_pb(schemes: Iterable[Scheme]) -> scheme_pb2.SchemeRegistry:
    """The registered schemes, and the version that identifies exactly these."""
    registered = sorted((one for one in schemes if one.name not in BY_NAME), key=lambda one: one.name)
    made = scheme_pb2.SchemeRegistry(schemes=map(scheme_to_pb, registered))
    if registered:
        made.version = hashlib.sha256(made.SerializeToString(deterministic=True)).hexdigest()[:16]
    return made


def registry_from_pb(registry: scheme_pb2.SchemeRegistry) -> Schemes:
    """The rules of all schemes. Raises InvalidError for an unknown tier."""
    return Schemes({one.name: scheme_from_pb(one) for one in registry.schemes}, registry.version)


def _tier(value: int) -> Tier:
    tier = known(Tier, value, "writable_by")
    if tier is Tier.UNSPECIFIED:
        raise fault(Reason.INVALID_FIELD, f"{value} is not a tier that can write.", field="writable_by")
    return tier
