"""Which projects a caller may name: with a derived token only those that are open to clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

from turnwright.executor.v1 import executor_service_pb2
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_executor.rpc.mounting import MOUNTED
from turnwright_kit.identity.caller import current_caller

IsOpen = Callable[[str], Awaitable[bool]]

ABOUT_NO_PROJECT: Final = frozenset(
    {
        "InitProject",
        "ListProjects",
        "SetModel",
        "DeleteModel",
        "ListModels",
        "Discover",
        "GetStatus",
        "GetIdentity",
        "ListTokens",
        "RevokeToken",
    }
)  # fmt: skip
"""Methods whose requests name no project. The first two look themselves at the directories that they are about."""

ABOUT_ALL: Final = frozenset({"GetProject", "ListProposals", "WatchProposals"})
"""Methods that need not name a project: they keep back what is closed to their caller."""

_GATED: Final = {
    service.full_name for service in (executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"], *MOUNTED)
}


class ProjectItem(Protocol):
    """Something that belongs to a project."""

    project: str


T = TypeVar("T", bound=ProjectItem)


class ProjectGate:
    """Admits the calls of clients by the project that they name; a method that is not known to need none needs one."""

    def __init__(self, is_open: IsOpen) -> None:
        self._is_open = is_open

    async def check(self, method: str, request: Any) -> None:
        """Raises TIER_FORBIDDEN for a project that is closed to the caller, PROJECT_NOT_FOUND for none."""
        service, _, name = method[1:].rpartition("/")
        if service not in _GATED or name in ABOUT_NO_PROJECT or not is_gated():
            return
        project = getattr(getattr(request, "task", request), "project", "")
        if project and not await self._is_open(project):
            raise closed_error(f"The project {project!r}")
        if not project and name not in ABOUT_ALL:
            raise fault(Reason.PROJECT_NOT_FOUND, "The request names no project: set `project`.", project="")

    async def shown(self, items: Iterable[T]) -> list[T]:
        """What of a list the caller may see."""
        return [item for item in items if not is_gated() or await self._is_open(item.project)]


def closed_error(what: str) -> TurnwrightError:
    return fault(
        Reason.TIER_FORBIDDEN,
        f"{what} is not open to derived tokens: run `turnwright init --clients` in its directory, use the deployment's "
        "secret, or list a folder above it in TURNWRIGHT_CLIENT_ROOTS of the executor.",
        tier="system",
        ceiling="client",
    )


def is_gated() -> bool:
    """Plugins of an executor see all of its projects, as the operator does who has installed them."""
    caller = current_caller()
    return not caller.is_trusted and caller.highest_tier is not Tier.PLUGIN
