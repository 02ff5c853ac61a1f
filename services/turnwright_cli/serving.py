"""`serve`: all four services in this process, or some of them with the others elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection, Mapping, Sequence

from turnwright_cli.exit_codes import FAILED, FailureError, usage
from turnwright_cli.interrupts import Interrupts
from turnwright_cli.invocation import Invocation
from turnwright_cli.stack import HTTP, HTTP_LISTEN, LISTEN, START_ORDER, Stack, StackPlan
from turnwright_kit.home import ensure_home
from turnwright_kit.logs import configure_logs
from turnwright_kit.pages import serve_readiness
from turnwright_kit.telemetry import configure_telemetry

_NAMES = ", ".join(START_ORDER)


def serve_plan(
    only: Sequence[str], listen: Sequence[str], peers: Mapping[str, str | None], db: str | None = None
) -> StackPlan:
    """The plan that the options describe. Raises FailureError that names the wrong option."""
    names = tuple(dict.fromkeys(only)) or START_ORDER
    for name in names:
        if name not in LISTEN:
            raise usage(f"--only: unknown service {name!r}. Choose from {_NAMES}.")
    given = {peer: address for peer, address in peers.items() if address}
    for peer in given:
        if peer in names:
            raise usage(
                f"--{peer}: this process runs the {peer} itself. Drop this option, or leave the {peer} out with --only."
            )
    if db and "store" not in names:
        raise usage("--db: this process runs no store. Add the store with --only, or drop this option.")
    addresses = {name: LISTEN[name] for name in names}
    if "executor" in names:
        # Several executors of one host cannot all have the port.
        is_whole = len(names) == len(LISTEN)
        addresses[HTTP] = os.environ.get("TURNWRIGHT_HTTP_LISTEN", HTTP_LISTEN if is_whole else "")
    for item in listen:
        name, address = _named(item, addresses)
        addresses[name] = address
    return StackPlan(addresses, given, db=db, http=addresses.pop(HTTP, None))


def _named(item: str, names: Collection[str]) -> tuple[str, str]:
    """Service and address of a `--listen`: `NAME=ADDR`, or an address for the executor or the only service."""
    name, separator, address = item.partition("=")
    if not separator:
        name, address = (next(iter(names)) if len(names) == 1 else "executor"), item
    if name not in names:
        raise usage(f"--listen: {name!r} does not run in this process ({', '.join(names)}).")
    if name == HTTP and (not address or (is_address(address) and not address.startswith("unix:"))):
        return name, address
    if name == HTTP or not is_address(address):
        other = "nothing, for none" if name == HTTP else "unix:/path/of/socket"
        raise usage(f"--listen: {address!r} is not an address. Write HOST:PORT or {other}.")
    return name, address


def is_address(text: str) -> bool:
    """Whether it has the form of an address to listen on: `host:port` or `unix:path`."""
    if text.startswith("unix:"):
        return len(text) > len("unix:")
    host, separator, port = text.rpartition(":")
    return bool(separator and host and port.isascii() and port.isdigit() and int(port) < 65536)


async def serve(
    call: Invocation, *, ui: bool, only: Sequence[str], listen: Sequence[str], db: str | None, **peers: str | None
) -> int:
    """Run the services until SIGINT or SIGTERM. Raises FailureError if one cannot start."""
    settings = call.settings
    ensure_home(settings.home)
    plan = serve_plan(only or words(settings.only), listen or words(settings.listen), peers, db)
    configure_logs(settings.log_level)
    try:
        stop_telemetry = configure_telemetry(settings.telemetry, "-".join(plan.listen) if only else "all")
        stop_probes = serve_readiness(settings.ready_listen)
    except (OSError, ModuleNotFoundError) as error:
        raise FailureError(FAILED, str(error)) from None
    from turnwright_kit.server import ends_before

    stack = Stack(plan)
    with Interrupts().entered() as interrupts:
        asked = asyncio.ensure_future(interrupts.asked.wait())
        try:
            if not await ends_before(asked, stack.start()):
                return 0
        except OSError as error:
            raise FailureError(FAILED, f"{error}\n`turnwright doctor` shows what already serves this home.") from None
        try:
            for name, address in stack.addresses.items():
                print(f"{name} serves at {address}", file=sys.stderr, flush=True)
            if stack.http:
                print(f"HTTP is served at {stack.http}", file=sys.stderr, flush=True)
            if ui:
                from turnwright_cli.page import show_page

                await ends_before(asked, show_page(call, principal="", url=""))
            await asked
            if interrupts.is_terminated:
                await stack.leave()
        finally:
            await asyncio.shield(stack.stop())
            await asyncio.to_thread(stop_probes)
            await asyncio.to_thread(stop_telemetry)
    return 0


def words(text: str) -> list[str]:
    """The parts of a setting with several values, separated by commas or spaces."""
    return text.replace(",", " ").split()
