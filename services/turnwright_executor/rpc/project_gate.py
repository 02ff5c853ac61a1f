"""Which projects a caller may name: with a derived token only those that are open to clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from google.protobuf.message import Message
from turnwright.executor.v1 import executor_service_pb2

from turnwright_core.entries import Tier
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.kit.auth import current_caller

IsOpen = Callable[[str], Awaitable[bool]]

_ITEMS: Final = ("items", "pending", "decided")
"""Fields of answers about all projects, each item with its `project`."""


def gate_projects(servicer: Any, is_open: IsOpen) -> None:
    """Have the calls of a servicer refuse projects that are closed to their caller, and leave those out of lists."""
    service = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"]
    for method in service.methods:
        fields = method.input_type.fields_by_name
        if "project" in fields or "task" in fields:
            wrap = _stream if method.server_streaming else _unary
            setattr(servicer, method.name, wrap(getattr(servicer, method.name), is_open))


def closed_error(what: str) -> TurnwrightError:
    return fault(
        Reason.TIER_FORBIDDEN,
        f"{what} is not open to derived tokens: run `turnwright init --clients` in its directory, use the deployment's "
        "secret, or list a folder above it in TURNWRIGHT_CLIENT_ROOTS of the executor.",
        tier="system",
        ceiling="client",
    )


def _unary(inner: Callable[[Any, Any], Awaitable[Any]], is_open: IsOpen) -> Callable[[Any, Any], Awaitable[Any]]:
    async def answer(request: Any, context: Any) -> Any:
        await _check(request, is_open)
        found = await inner(request, context)
        await _leave_out(request, found, is_open)
        return found

    return answer


def _stream(inner: Callable[[Any, Any], AsyncIterator[Any]], is_open: IsOpen) -> Callable[[Any, Any], Any]:
    async def answer(request: Any, context: Any) -> AsyncIterator[Any]:
        await _check(request, is_open)
        async for found in inner(request, context):
            await _leave_out(request, found, is_open)
            yield found

    return answer


def is_gated() -> bool:
    """Plugins of an executor see all of its projects, as the operator does who has installed them."""
    caller = current_caller()
    return not caller.holds_secret and caller.ceiling is not Tier.PLUGIN


def _name(request: Any) -> str:
    return str(request.task.project if "task" in request.DESCRIPTOR.fields_by_name else request.project)


async def _check(request: Any, is_open: IsOpen) -> None:
    if is_gated() and (name := _name(request)) and not await is_open(name):
        raise closed_error(f"The project {name!r}")


async def _leave_out(request: Any, found: Message, is_open: IsOpen) -> None:
    if _name(request) or not is_gated():
        return
    for field in _ITEMS:
        if field in found.DESCRIPTOR.fields_by_name:
            items = getattr(found, field)
            kept = [item for item in items if await is_open(item.project)]
            del items[:]
            items.extend(kept)
