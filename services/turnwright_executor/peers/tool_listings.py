"""What a server of tools has said last that it brings, and when it is asked again.

A server is another's program: its list has a size, and one that changes each time, or takes long to check, is asked
more and more seldom.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from turnwright.tool.v1 import tool_service_pb2 as pb

from turnwright_executor.domain.tool_servers import RegisteredServer
from turnwright_executor.domain.tool_spec import ServedTool, specs_of
from turnwright_executor.wire.tools import described_from_pb

REFRESH_S: Final = 5.0
"""Seconds after which a server is asked again what it brings."""
REFRESH_S_MAX: Final = 320.0
"""The same for one whose list changes each time: twice as long after each change, half as long after none."""
SPARED: Final = 25
"""What was checked for a second is not checked again for so many."""
SNAPSHOT_BYTES_MAX: Final = 8 * 1024 * 1024
"""The tools of all servers of a project, as a loop keeps them: an entry of the run."""


class Listing(Struct, frozen=True):
    """What a server has said last, for a project."""

    specs: tuple[ServedTool, ...] = ()
    version: str = ""
    problem: str = ""
    asked_s: float = 0.0
    """When, by the monotonic clock; 0: never."""
    digest: bytes = b""
    """Of the list as it came."""
    refresh_s: float = REFRESH_S
    """Seconds until it is asked again."""
    size: int = 0
    """What its tools take of a snapshot, in bytes."""
    is_login_needed: bool = False
    """Whether that is what is wrong."""

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.asked_s < self.refresh_s

    def lost(self, problem: str, *, is_login_needed: bool = False) -> Listing:
        """It does not say what it brings: its tools stay, so that calls are told what is wrong."""
        return replace(self, problem=problem, asked_s=time.monotonic(), is_login_needed=is_login_needed)


class ServerState(Struct, frozen=True):
    """A server as this executor sees it."""

    server: RegisteredServer
    listing: Listing


async def listed(server: RegisteredServer, answer: pb.DescribeResponse, before: Listing) -> Listing:
    """The listing after an answer to Describe. Raises nothing."""
    digest = hashlib.sha256(answer.SerializeToString(deterministic=True)).digest()
    if before.digest and (answer.unchanged or digest == before.digest):
        refresh_s = max(REFRESH_S, before.refresh_s / 2)
        return replace(before, problem="", is_login_needed=False, asked_s=time.monotonic(), refresh_s=refresh_s)
    # What a sandbox host has is for executors.
    described = [] if server.workspaces else [described_from_pb(one) for one in answer.tools]
    refresh_s = min(REFRESH_S_MAX, 2 * before.refresh_s) if before.digest else REFRESH_S

    def check() -> tuple[list[ServedTool], int, float]:
        began_s = time.thread_time()
        specs = specs_of(server.name, described, server.tools)
        asking = {one.server_name: one for one in before.specs if one.asks}
        specs = [_as_before(replace(one, registration=server.registration), asking) for one in specs]
        size = len(msgspec.json.encode([one for one in specs if not one.is_refused]))
        return specs, size, time.thread_time() - began_s

    specs, size, took_s = await asyncio.to_thread(check)
    refresh_s = max(refresh_s, SPARED * took_s)
    return Listing(tuple(specs), answer.version, "", time.monotonic(), digest, refresh_s, size)


def _as_before(spec: ServedTool, asking: Mapping[str, ServedTool]) -> ServedTool:
    """A tool that was asked about still is: who registered its server has not heard that it changes nothing."""
    before = asking.get(spec.server_name)
    if before is None or spec.asks:
        return spec
    why = "It says now that it changes nothing: calls are asked about until its server is registered otherwise."
    problem = f"{spec.problem} {why}".lstrip()
    return replace(spec, read_only=False, effect_class=before.effect_class, problem=problem)


def merged(states: Sequence[ServerState]) -> list[ServerState]:
    """The states as they are with each other: no two servers have one name, and all their tools fit into a snapshot."""
    taken: set[str] = set()
    left, kept = SNAPSHOT_BYTES_MAX, []
    for state in states:
        name, listing = state.server.name, state.listing
        if name in taken:
            listing = Listing(problem=f"The deployment has a server {name}, too: give this one another name.")
        elif listing.size > left:
            problem = f"Its tools take {listing.size} bytes, and with those of the servers before it more than "
            listing = Listing(problem=f"{problem}{SNAPSHOT_BYTES_MAX}: register it with fewer `tools`.")
        left -= listing.size
        taken.add(name)
        kept.append(ServerState(state.server, listing))
    return kept
