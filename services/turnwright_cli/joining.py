"""Joining running services: reports that their settings apply, and which variables of this terminal do not."""

from __future__ import annotations

from typing import Final

from turnwright.executor.v1 import query_pb2

from turnwright_cli.output import complain
from turnwright_cli.plain import safe_line
from turnwright_cli.session import Session
from turnwright_cli.stack import settings_class
from turnwright_core.errors import TurnwrightError
from turnwright_core.kit.settings import load
from turnwright_core.kit.settings_report import settings_in_force

_OF_PLACES: Final = frozenset(
    f"TURNWRIGHT_{name}"
    for name in (*("HOME", "TOKEN", "LISTEN", "DB", "STORE", "ASSEMBLER", "PROVIDER", "ADVERTISE"), "LOG_LEVEL")
)
"""Variables with addresses of services; a stack always differs from a terminal in them."""
_OF_MODELS: Final = ("TURNWRIGHT_MODEL_", "TURNWRIGHT_CONTEXT_")
"""Models that are known to the services but not set here do no harm."""


async def announce(session: Session) -> None:
    """Report on standard error that services were joined, and which variables differ."""
    if not session.attached:
        return
    try:
        names = differing_variables(await session.client.get_status())
    except TurnwrightError:
        # If something is wrong, the command itself will report it.
        return
    if session.joined:
        complain("using the services that another command has started, with its settings")
    if names:
        complain(f"set here but without effect, because the running services have other values: {', '.join(names)}")


def differing_variables(status: query_pb2.GetStatusResponse) -> list[str]:
    """Variables that have another value here than in the running services. Empty if these report none."""
    there = {(service.name, one.variable): one.digest for service in status.services for one in service.settings}
    if not there:
        return []
    serving = {service.name for service in status.services if service.serving}
    here = {
        (name, one.variable): one.digest for name in serving for one in settings_in_force(load(settings_class(name)))
    }
    wrong = {key for key in here.keys() | there.keys() if here.get(key) != there.get(key)}
    names = {name for service, name in wrong if (service, name) in here or not name.startswith(_OF_MODELS)}
    return sorted(safe_line(name) for name in names - _OF_PLACES)
