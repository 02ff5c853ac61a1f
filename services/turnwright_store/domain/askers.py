"""Who asked for a loop or set a schedule, as it is stored: what it may do is decided by what that person may do now."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct, json

from turnwright_kit.identity.caller import TIERS, Caller, Kind, Proof


class Asker(Struct, frozen=True, omit_defaults=True):
    """A caller at the moment of its call, without what proved it: a token that expires ends no work."""

    name: str
    kind: str = Kind.PERSON.value
    groups: tuple[str, ...] = ()
    root: bool = False
    projects: tuple[str, ...] | None = None


_DECODER = json.Decoder(Asker)


def asker_json(caller: Caller) -> str:
    limited_to = None if caller.projects is None else tuple(sorted(caller.projects))
    groups = tuple(sorted(caller.groups))
    return json.encode(Asker(caller.name, caller.kind.value, groups, caller.is_root, limited_to)).decode()


@lru_cache(maxsize=256)
def asker_of(text: str | None) -> Asker | None:
    """None for work of an earlier release, of which nobody knows who asked for it."""
    return _DECODER.decode(text) if text else None


def caller_of(asker: Asker) -> Caller:
    """Somebody as a caller, to ask what it may do now."""
    kind = Kind(asker.kind)
    proof = Proof.SECRET if asker.root else Proof.TOKEN
    limited_to = None if asker.projects is None else frozenset(asker.projects)
    return Caller(asker.name, kind, TIERS[kind], proof, frozenset(asker.groups), projects=limited_to)
