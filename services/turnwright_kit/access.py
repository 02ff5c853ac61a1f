"""What each rpc asks of its callers, as the protos declare it (types/v1/access.proto), and who is admitted to it.

Source: architecture 10; docs/adr/0066.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from msgspec import Struct
from turnwright.types.v1 import access_pb2 as pb
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, TurnwrightError, fault, project_not_found
from turnwright_kit.identity.caller import Caller, Kind
from turnwright_kit.identity.policy import Policy, check_service

_WITHOUT_GRANT: Final = (pb.RIGHT_IDENTITY, pb.RIGHT_SERVICE)
"""What nobody has by a grant, and so in no project."""

KNOWN_S_MAX: Final = 5.0
"""Longest wait of a call until the store has told a service that has just begun who may do what, in seconds."""

ProjectOf = Callable[[Any], str]


def check_min_tier(caller: Caller, min_tier: Tier, what: str) -> None:
    """Raises TIER_FORBIDDEN."""
    if caller.tier < min_tier:
        raise fault(
            Reason.TIER_FORBIDDEN,
            f"This needs a token of the tier {min_tier.name.lower()}; the one in use has {caller.tier.name.lower()}.",
            method=what,
            tier=min_tier.name.lower(),
            ceiling=caller.tier.name.lower(),
        )


class UndeclaredAccessError(Exception):
    """An rpc does not say who may call it. The text names the rpc, and what to declare."""


class MethodAccess(Struct, frozen=True):
    """What an rpc asks of its callers."""

    path: str
    """Its name on the wire, without the first slash."""
    name: str
    right: int
    reach: int
    project_of: ProjectOf
    """The project that a request names; empty: none. It takes a message, or the value of one."""
    min_tier: Tier
    """The lowest tier of its callers."""

    @property
    def is_granted(self) -> bool:
        """Whether it needs a right that grants give."""
        return self.right not in _WITHOUT_GRANT

    async def check(self, policy: Policy, caller: Caller, request: object) -> None:
        """Raises PROJECT_NOT_FOUND for a project in which the caller has no right at all, else RIGHT_MISSING.

        TIER_FORBIDDEN if its tier is too low.
        """
        await self._check_access(policy, caller, request)
        check_min_tier(caller, self.min_tier, self.name)

    async def _check_access(self, policy: Policy, caller: Caller, request: object) -> None:
        if caller.is_root:
            return
        if caller.is_answered_for:
            caller = Caller(caller.by, Kind.SERVICE, caller.tier)
        if self.right == pb.RIGHT_SERVICE:
            check_service(caller, self.name)
        elif self.right == pb.RIGHT_IDENTITY:
            if caller.is_of_call:
                text = f"{self.name} is not for tools that call back: they read, and work on files, in one project."
                raise fault(Reason.RIGHT_MISSING, text, right="identity", project="")
        else:
            if not policy.version and not caller.is_trusted:
                await policy.until(lambda: policy.version > 0, KNOWN_S_MAX)
                policy.check_known()
            try:
                self.check_right(policy, caller, request)
            except TurnwrightError:
                if caller.is_trusted:
                    raise
                await policy.renew()
                self.check_right(policy, caller, request)

    def check_right(self, policy: Policy, caller: Caller, request: object) -> None:
        """The same, once it is known who may do what."""
        project = "" if self.reach == pb.REACH_DEPLOYMENT else self.project_of(request)
        if project:
            policy.check_project(caller, self.right, project, self.name)
        elif self.reach in (pb.REACH_DEPLOYMENT, pb.REACH_PROJECT_OR_DEPLOYMENT):
            policy.check_deployment(caller, self.right, self.name)
        elif self.reach != pb.REACH_PROJECTS:
            raise project_not_found("")


def check_declared(service: str) -> None:
    """Refuse a service of the contract with an rpc that does not say who may call it. Raises UndeclaredAccessError."""
    for method in descriptor_pool.Default().FindServiceByName(service).methods:
        access_of(method)


@cache
def method_access(path: str) -> MethodAccess:
    """What an rpc asks, by its name on the wire. Raises KeyError for one that is not of the contract."""
    method = descriptor_pool.Default().FindMethodByName(path.lstrip("/").replace("/", "."))
    access, fields = access_of(method), method.input_type.fields_by_name
    found: ProjectOf = lambda _: ""  # noqa: E731 - one of three
    if "project" in fields:
        found = attrgetter("project")
    elif "task" in fields:
        found = attrgetter("task.project")
    floor = Tier(access.min_tier) or (Tier.CLIENT if is_change(path) else Tier.UNSPECIFIED)
    return MethodAccess(path.lstrip("/"), method.name, access.right, access.reach, found, floor)


def access_of(method: MethodDescriptor) -> pb.Access:
    """What an rpc asks of its callers. Raises UndeclaredAccessError."""
    access: pb.Access = method.GetOptions().Extensions[pb.access]
    if access.right == pb.RIGHT_UNSPECIFIED:
        raise UndeclaredAccessError(
            f"{method.full_name} does not say which right its callers need: declare it in its proto, as in "
            "`option (turnwright.types.v1.access) = {right: RIGHT_READ};`."
        )
    is_in_project = access.right not in _WITHOUT_GRANT and access.reach == pb.REACH_UNSPECIFIED
    if is_in_project and not {"project", "task"} & set(method.input_type.fields_by_name):
        raise UndeclaredAccessError(
            f"{method.full_name} needs {pb.Right.Name(access.right)} in a project, but its request names none: give "
            "the request a field `project`, or declare another reach."
        )
    return access


@cache
def is_change(path: str) -> bool:
    """Whether somebody changes something by an rpc (its path): it does not only read, and is not for services."""
    try:
        method = descriptor_pool.Default().FindMethodByName(path.lstrip("/").replace("/", "."))
    except KeyError:
        return False
    options = method.GetOptions()
    right = options.Extensions[pb.access].right
    reads = options.idempotency_level == options.NO_SIDE_EFFECTS
    return not reads and right not in (pb.RIGHT_UNSPECIFIED, pb.RIGHT_SERVICE)


_OWNERS_FIELDS: Final = ("epoch", "written_by")
"""Fields that only the owner of a run sets."""


def is_owners(request: Any) -> bool:
    """Whether the owner of a run makes a call for its loop, of a message or its value."""
    return any(_is_set(request, name) for name in _OWNERS_FIELDS)


def _is_set(request: Any, name: str) -> bool:
    if not (descriptor := getattr(request, "DESCRIPTOR", None)):
        return getattr(request, name, None) is not None
    field = descriptor.fields_by_name.get(name)
    return field is not None and bool(request.HasField(name) if field.has_presence else getattr(request, name))
