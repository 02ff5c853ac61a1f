"""The rules that every transaction of a store works by: schemes, limits and times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from msgspec import Struct, field
from turnwright_values.types import Assembly, Right, Rule

from turnwright_core.schemes import Scheme
from turnwright_kit.identity.caller import Caller
from turnwright_kit.identity.policy import Policy
from turnwright_store.domain.limits import WriteLimits

_NOBODYS: Final = Policy(lambda: 0)
"""That of a store which nobody has told who may do what: nobody but the deployment itself."""


class StoreRules(Struct, frozen=True, dict=True):
    """Read at the start. Nothing in it changes; another one takes its place when schemes are registered."""

    incarnation: str
    """Identity of this history; part of every cursor."""
    schemes: Mapping[str, Scheme]
    """The registered schemes by name; a project file's is the empty name."""
    global_scope: int
    """Id of the global scope."""
    loops_queued_max: int
    """Most loops that wait in one run."""
    heartbeat_s: float
    """Seconds of silence after which a watcher is sent the cursor alone."""
    pattern_s_max: float
    """Seconds that matching one request's patterns may take."""
    schemes_version: str = ""
    """Which schemes these are, as readers name them; empty: the built-in ones."""
    lease_ms: int = 6000
    """Length of a lease where the claim does not say, in milliseconds."""
    lease_grace_ms: int = 1000
    """How long after its end a lease still keeps others out, in milliseconds."""
    token_divisor: int = 2
    """Code points of a token, in every estimate."""
    assembly: Assembly = Assembly.PACKET
    """How runs are sent to their models whose first task does not say."""
    approval_rules: tuple[Rule, ...] = ()
    """The approval rules of the deployment."""
    approval_version: str = ""
    """Which these are; empty: there are none."""
    policy: Policy | None = None
    """Who may do what, as it is at each moment; None: only who holds the deployment's secret is known."""
    limits: WriteLimits = field(default_factory=WriteLimits)
    """Limits of what is written."""

    def check_right(self, caller: Caller, right: Right, project: str, what: str) -> None:
        """What an rpc's own right does not cover: what is asked of this request (`what`, in words).

        Raises RIGHT_MISSING, PROJECT_NOT_FOUND.
        """
        (self.policy or _NOBODYS).check_project(caller, right, project, what)

    def scheme(self, name: str) -> Scheme:
        """The rules of a scheme; one that nobody registered is run-scoped logging (RU067, RU085)."""
        return self.schemes.get(name) or Scheme(name)

    @cached_property
    def hidden_schemes(self) -> list[str]:
        return sorted(name for name, scheme in self.schemes.items() if not scheme.model_visible)
