"""Who may do what: the grants of a deployment, as each of its services has them in memory.

The store sends the policy again after each change. A caller's rights are computed at its first call after that, and
looked up at all later ones. What is not granted is denied, and a project without a right in it is as one that does not
exist. Source: architecture 10; docs/adr/0066.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final
from weakref import WeakSet

from msgspec import Struct
from turnwright_values.types import Grant, GrantRole, Right

from turnwright_core.errors import Reason, TurnwrightError, fault, project_not_found
from turnwright_kit.identity.caller import Caller, Kind
from turnwright_kit.identity.refusals import refusal

IN_PROJECTS: Final = frozenset(
    (Right.READ, Right.RUN, Right.DECIDE, Right.EDIT, Right.FILES, Right.COMMAND, Right.MANAGE, Right.ADMIN)
)
"""What grants give. All but ADMIN are of projects alone."""

ROLES: Final[Mapping[GrantRole, frozenset[Right]]] = {
    GrantRole.VIEWER: frozenset((Right.READ,)),
    GrantRole.MEMBER: IN_PROJECTS - {Right.MANAGE, Right.ADMIN},
    GrantRole.OWNER: IN_PROJECTS,
    GrantRole.OPERATOR: frozenset((Right.ADMIN,)),
}
"""The rights of each role. That of operators holds in the deployment and in each of its projects."""

CEILINGS: Final[Mapping[Kind, frozenset[Right]]] = {
    Kind.PERSON: IN_PROJECTS,
    Kind.PLUGIN: IN_PROJECTS,
    Kind.MODEL: frozenset((Right.READ, Right.FILES)),
}
"""What grants can give to callers of a kind."""

SERVICES: Final[Mapping[str, frozenset[Right]]] = {
    "assembler": frozenset((Right.READ,)),
}
"""Services that have less than all rights in projects. None has ADMIN by itself."""

EVERYBODY: Final = "*"
"""The subject of grants to whoever has an identity."""

_CALLERS_MAX: Final = 4096
"""Callers whose rights are kept."""

_GIVERS_MAX: Final = 5
"""Subjects that an error names as those who can give a right."""

RENEWED_S_MAX: Final = 5.0
"""Longest wait of a call that would be refused until it is known what holds now, in seconds."""

_NEVER_MS: Final = 2**62


def bit_of(right: int) -> int:
    return 1 << right


def bits_of(rights: Iterable[int]) -> int:
    return sum(map(bit_of, set(rights)))


def rights_of(bits: int) -> tuple[Right, ...]:
    return tuple(right for right in Right if bits & bit_of(right))


def subjects_of(name: str, groups: Iterable[str]) -> tuple[str, ...]:
    """The subjects of grants that fit a caller."""
    return (f"user:{name}", *(f"group:{group}" for group in sorted(groups)), EVERYBODY)


_ROLE_BITS: Final = {role: bits_of(rights) for role, rights in ROLES.items()}
_CEILING_BITS: Final = {kind: bits_of(rights) for kind, rights in CEILINGS.items()}
_OF_CALLS: Final = bits_of((Right.READ, Right.FILES))
"""What grants can give to a call of a tool that calls back."""
_ADMIN: Final = bit_of(Right.ADMIN)
_OF_OPERATORS: Final = bits_of((Right.READ, Right.ADMIN))
"""In the deployment: to change what all share, and to see who may."""


class CallerQuota(Struct, frozen=True):
    """What callers may have under way at a process; None: as the settings of its service say, or as much as comes."""

    subject: str
    """Whose: `user:NAME`, `group:NAME`, `project:NAME`; empty: of all together."""
    project: str = ""
    """For calls that name it; empty: all."""
    calls: int | None = None
    unsent_bytes: int | None = None


class PolicySnapshot(Struct, frozen=True):
    """The policy at one moment."""

    version: int
    grants: Sequence[Grant] = ()
    revoked_token_ids: frozenset[str] = frozenset()
    caller_quotas: Sequence[CallerQuota] = ()


class _Rights(Struct, frozen=True):
    """What a caller may do, as bits."""

    in_projects: Mapping[str, int]
    everywhere: int
    """In each project, whether it is named above or not."""
    in_deployment: int
    until_ms: int
    """When the first of its grants ends."""


_EVERYTHING: Final = _Rights({}, bits_of(IN_PROJECTS), bits_of(IN_PROJECTS), _NEVER_MS)
"""What the holder of the deployment's secret may do."""


class Policy:
    """The policy that a service decides by. Version 0: nobody has told it yet."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        """`clock_ms` gives milliseconds since 1970: grants may end."""
        self._clock_ms = clock_ms
        self._now = PolicySnapshot(0)
        self._granted: dict[str, list[Grant]] = {}
        self._known: dict[Hashable, _Rights] = {}
        self._quotas: dict[tuple[str, str], CallerQuota] = {}
        self._waiting: WeakSet[asyncio.Event] = WeakSet()
        self.looks: set[Callable[[], None]] = set()
        """What is called at each change. It raises nothing."""
        self.calls: dict[str, set[Callable[[], None]]] = {}
        """The tokens of calls that this process has under way, by id, with what is called when the call ends."""
        self.reads: Callable[[], Awaitable[None]] | None = None
        """Replaces the policy by the one that holds now, if this is another."""
        self._reading, self._begun, self._done = asyncio.Lock(), 0, 0

    @property
    def version(self) -> int:
        return self._now.version

    @property
    def revoked_token_ids(self) -> frozenset[str]:
        return self._now.revoked_token_ids

    def replace(self, snapshot: PolicySnapshot) -> None:
        """Decide by another policy from now on. It may be of an earlier version, where a store was restored."""
        granted: dict[str, list[Grant]] = {}
        for grant in snapshot.grants:
            granted.setdefault(grant.subject, []).append(grant)
        self._now, self._granted, self._known = snapshot, granted, {}
        self._quotas = {(quota.project, quota.subject): quota for quota in snapshot.caller_quotas}
        for changed in self._waiting:
            changed.set()
        for look in tuple(self.looks):
            look()

    def end_call(self, token: str) -> None:
        """Take the token of a call no longer, and end what it has open."""
        for look in self.calls.pop(token, ()):
            look()

    def check_call(self, caller: Caller) -> None:
        """Raises UNAUTHENTICATED for the token of a call that is over, or that another process has made."""
        if caller.is_of_call and not caller.by and caller.token not in self.calls:
            raise refusal("revoked", "This token was for one call of a tool, which is over: each call brings its own.")

    async def until(self, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Wait until a policy has come for which this is so, at most so long."""
        changed = asyncio.Event()
        self.notifies(changed)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not is_so():
                    await changed.wait()
                    changed.clear()

    async def renew(self) -> None:
        """Decide by what holds at this moment: another service may have changed it, and been told before this one.

        Many that ask at once share a reading. While the store is away the policy stays as it was.
        """
        begun = self._begun
        with contextlib.suppress(TimeoutError, TurnwrightError):
            async with asyncio.timeout(RENEWED_S_MAX), self._reading:
                if self.reads and self._done <= begun:
                    self._begun += 1
                    await self.reads()
                    self._done = self._begun

    def notifies(self, woken: asyncio.Event) -> None:
        """Set an event at each change, as long as somebody has it."""
        self._waiting.add(woken)

    def rights_in(self, caller: Caller, project: str) -> int:
        """What a caller may do in a project, as bits."""
        rights = self._rights(caller)
        return rights.in_projects.get(project, 0) | rights.everywhere

    def rights_in_deployment(self, caller: Caller) -> int:
        return self._rights(caller).in_deployment

    def rights_by_project(self, caller: Caller) -> Mapping[str, int]:
        """The projects in which a caller has grants of its own, with its rights there."""
        return self._rights(caller).in_projects

    def projects_with(self, caller: Caller, right: Right) -> list[str] | None:
        """The projects in which a caller has a right, sorted; None: it has it in all, also in those to come."""
        rights, bit = self._rights(caller), bit_of(right)
        if rights.everywhere & bit:
            return None
        return sorted(name for name, bits in rights.in_projects.items() if bits & bit)

    def until_ms(self, caller: Caller) -> int | None:
        """When the first of the grants of a caller ends, in ms since 1970; None: none does."""
        until_ms = self._rights(caller).until_ms
        return None if until_ms == _NEVER_MS else until_ms

    def ends_ms(self, caller: Caller, right: Right, project: str) -> int:
        """When the last of the grants ends that give a caller a right in a project, in ms since 1970; 0: never."""
        ends = [
            grant.until_ms
            for grant in self._fitting(caller)
            if grant.project == project and _ROLE_BITS.get(grant.role, 0) & ~bits_of(grant.without) & bit_of(right)
        ]
        return 0 if 0 in ends else max(ends, default=0)

    def quota_of(self, principal: str) -> CallerQuota | None:
        """What a principal may have under way; None: as the settings say."""
        return self._quotas.get(("", f"user:{principal}"))

    def quotas_over(self, caller: Caller, project: str) -> Sequence[CallerQuota]:
        """What a caller may have under way together with others, by a call that names a project, or none (empty)."""
        if not self._quotas:
            return ()
        groups = [f"group:{group}" for group in caller.groups]
        keys = [("", subject) for subject in ("", *groups)]
        if project:
            keys += [("", f"project:{project}"), *((project, each) for each in ("", f"user:{caller.name}", *groups))]
        return [found for key in keys if (found := self._quotas.get(key))]

    def has(self, caller: Caller, right: Right, project: str) -> bool:
        return bool(self.rights_in(caller, project) & bit_of(right))

    def _rights(self, caller: Caller) -> _Rights:
        if caller.is_root:
            return _EVERYTHING
        found = self._known.get(caller.key)
        if found is None or found.until_ms <= self._clock_ms():
            if len(self._known) >= _CALLERS_MAX:
                self._known.clear()
            found = self._known[caller.key] = self._computed(caller)
        return found

    def _computed(self, caller: Caller) -> _Rights:
        if caller.kind is Kind.SERVICE:
            rights = SERVICES.get(caller.name, IN_PROJECTS - {Right.ADMIN})
            return _Rights({}, bits_of(rights), 0, _NEVER_MS)
        ceiling, now_ms, until_ms = _CEILING_BITS[caller.kind], self._clock_ms(), _NEVER_MS
        if caller.is_of_call:
            ceiling &= _OF_CALLS
        in_projects: dict[str, int] = {}
        everywhere = in_deployment = 0
        for grant in self._fitting(caller):
            if grant.until_ms:
                if grant.until_ms <= now_ms:
                    continue
                until_ms = min(until_ms, grant.until_ms)
            bits = _ROLE_BITS.get(grant.role, 0) & ceiling & ~bits_of(grant.without)
            if grant.project:
                in_projects[grant.project] = in_projects.get(grant.project, 0) | bits
            elif bits & _ADMIN:
                everywhere, in_deployment = _ADMIN, _OF_OPERATORS
        if caller.projects is not None:
            # A token that is limited to projects is not one of the deployment.
            in_projects = {name: bits | everywhere for name, bits in in_projects.items() if name in caller.projects}
            everywhere = in_deployment = 0
        return _Rights(in_projects, everywhere, in_deployment, until_ms)

    def _fitting(self, caller: Caller) -> Iterable[Grant]:
        for subject in subjects_of(caller.name, caller.groups):
            yield from self._granted.get(subject, ())

    # Checks ----------------------------------------------------------------------------------------------------

    def check_known(self) -> None:
        """Raises SERVICE_UNAVAILABLE where nobody has told this service yet who may do what."""
        if not self._now.version:
            raise fault(
                Reason.SERVICE_UNAVAILABLE,
                "The store has not told this service yet who may do what: repeat the call.",
                service="store",
                address="",
            )

    def check_project(self, caller: Caller, right: int, project: str, what: str) -> None:
        """Raises PROJECT_NOT_FOUND where the caller has no right at all, RIGHT_MISSING where it has others.

        `what` is what needs the right, in words.
        """
        bits = self.rights_in(caller, project)
        if bits & bit_of(right):
            return
        if not bits:
            raise project_not_found(project)
        raise self._right_missing(caller, right, project, what)

    def check_deployment(self, caller: Caller, right: int, what: str) -> None:
        """Raises RIGHT_MISSING."""
        if not self.rights_in_deployment(caller) & bit_of(right):
            word = word_of(right)
            raise fault(
                Reason.RIGHT_MISSING,
                f"{what} needs `{word}` in the deployment, which operators have, and the deployment's secret.",
                right=word,
                project="",
            )

    def _right_missing(self, caller: Caller, right: int, project: str, what: str) -> TurnwrightError:
        word, needed = word_of(right), bit_of(right)
        givers = ""
        is_possible = bool(_CEILING_BITS.get(caller.kind, 0) & needed)
        if is_possible and self.has(caller, Right.READ, project) and (named := self._givers(project, needed)):
            subject = shlex.quote(f"user:{caller.name}")
            role = next(role for role in ROLES if _ROLE_BITS[role] & needed).name.lower()
            givers = f" {' and '.join(named)} can give it: `turnwright grant set {role} {subject}` in its directory."
        message = f"{what} needs `{word}` in the project {project}, which you do not have there.{givers}"
        return fault(Reason.RIGHT_MISSING, message, right=word, project=project)

    def _givers(self, project: str, needed: int) -> list[str]:
        """Who has the right and may give it, some of them."""
        found = sorted(
            grant.subject.removeprefix("user:")
            for grants in self._granted.values()
            for grant in grants
            if grant.project == project
            and grant.subject != EVERYBODY
            and not bits_of(grant.without) & (_ADMIN | needed)
            and _ROLE_BITS.get(grant.role, 0) & _ADMIN
        )
        return found[:_GIVERS_MAX]


def word_of(right: int) -> str:
    return Right(right).name.lower()


def check_service(caller: Caller, what: str) -> None:
    """Raises RIGHT_MISSING for whoever is no service of the deployment."""
    if not caller.is_trusted:
        raise fault(
            Reason.RIGHT_MISSING,
            f"{what} is for the services of the deployment: no grant gives it.",
            right=word_of(Right.SERVICE),
            project="",
        )
