"""The caller of an rpc: who it is, how that was proven, and until when."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from enum import Enum
from typing import Final

from msgspec import Struct, structs
from turnwright_values.types import Tier

OPERATOR: Final = "operator"
"""The name of whoever holds the deployment's secret."""


OF_CALL: Final = "call."
"""What the id of a token begins with that a call of a tool has: taken by the process that made it, while it lasts."""


class Kind(Enum):
    """What a caller is. It bounds the entries that a caller may write."""

    PERSON = "person"
    SERVICE = "service"
    """A service of the deployment, which may act for others."""
    MODEL = "model"
    PLUGIN = "plugin"


TIERS: Final[Mapping[Kind, Tier]] = {
    Kind.PERSON: Tier.CLIENT,
    Kind.SERVICE: Tier.SYSTEM,
    Kind.MODEL: Tier.MODEL,
    Kind.PLUGIN: Tier.PLUGIN,
}
"""The highest tier of each kind, as a writer of entries. The deployment's secret has every tier."""


KINDS: Final[Mapping[Tier, Kind]] = {tier: kind for kind, tier in TIERS.items()}


class Proof(Enum):
    """How a caller was authenticated."""

    SECRET = "secret"  # noqa: S105 - a word
    """It holds the deployment's secret."""
    TOKEN = "token"  # noqa: S105 - a word
    """One of our own tokens."""
    ISSUER = "issuer"
    """A token of a configured issuer."""
    CERTIFICATE = "certificate"
    """The certificate of its connection."""
    PROXY = "proxy"
    """A trusted proxy has checked its certificate."""
    PROCESS = "process"
    """It is a service of the process that it calls."""


class Caller(Struct, frozen=True):
    """Who makes a call."""

    name: str
    """The principal: what records, events and idempotency keys say."""
    kind: Kind
    tier: Tier
    """As a writer of entries: that of its kind, or the lower one that the call asks for."""
    proof: Proof = Proof.TOKEN
    groups: frozenset[str] = frozenset()
    token: str = ""
    """The id of its token, which can be revoked alone."""
    expires_ms: int = 0
    """When its proof expires, in Unix milliseconds; 0: never."""
    projects: frozenset[str] | None = None
    """The projects that its token is limited to; None: it is not limited."""
    peer: str = ""
    """The address that the first call came from."""
    method: str = ""
    """The rpc that it called first, `turnwright.executor.v1.ExecutorService/Act`; empty: none of the contract."""
    right: int = 0
    """The right that this rpc needs."""
    by: str = ""
    """The service that acts for this caller; empty: it calls itself."""
    is_answered_for: bool = False
    """Whether that service has decided itself what the caller may do, and does what its own rights allow."""

    @property
    def is_root(self) -> bool:
        """Whether it holds the deployment's secret, which may do everything, also if the call asks for a lower tier."""
        return self.proof is Proof.SECRET

    @property
    def is_trusted(self) -> bool:
        """Whether it is the deployment itself: whoever holds its secret, or one of its services."""
        return self.is_root or self.kind is Kind.SERVICE

    @property
    def is_of_call(self) -> bool:
        """Whether it is a server of tools that calls back: it may less than the person whose name it has."""
        return self.token.startswith(OF_CALL)

    @property
    def is_counted(self) -> bool:
        """Whether what it has under way is limited here: that of a service is not, nor what was counted there."""
        return not (self.is_trusted or self.by)

    @property
    def highest_tier(self) -> Tier:
        return Tier.SYSTEM if self.is_root else TIERS[self.kind]

    def answered_for(self) -> Caller:
        """This caller, for whom a service does what it has found to be allowed."""
        return structs.replace(self, tier=Tier.SYSTEM, is_answered_for=True)

    @property
    def key(self) -> tuple[object, ...]:
        """What its rights follow from."""
        return self.name, self.kind, self.groups, self.projects, self.is_of_call


_caller: ContextVar[Caller] = ContextVar("turnwright_caller")


def current_caller() -> Caller:
    """The caller of the rpc being handled. Raises LookupError outside an rpc."""
    return _caller.get()


def enter_caller(caller: Caller) -> None:
    """Begin to handle an rpc of this caller in this task."""
    _caller.set(caller)
