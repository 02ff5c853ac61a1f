"""Connections to servers of tools, pinned to addresses that were looked at where a project's owner named the host.

A server is not a part of the deployment: it gets its own headers, never a token of ours but that of a call. One that
cannot be reached is not tried again for some seconds.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from turnwright.tool.v1 import tool_service_pb2 as pb

from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import MESSAGE_BYTES_MAX
from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.transport import check_plaintext, is_loopback, open_channel
from turnwright_executor.domain.tool_servers import AllowedHosts, Away, RegisteredServer, unreachable
from turnwright_executor.peers.mcp_bridge import START_S, McpBridge

CONNECT_S: Final = 2.0
"""Seconds that a connection may take."""
HEALTH_S: Final = 5.0
"""Seconds that a server may take to say that it is well."""
AWAY_S: Final = 3.0
"""Seconds for which one that was away is not tried again."""
LOOK_S: Final = 0.1
"""Seconds between two looks whether one that has left in a call is back."""
CONNECTIONS_MAX: Final = 1024
"""Servers, and lists of them, that are remembered."""
DETAIL_CHARS_MAX: Final = 1000

LOST: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
    }
)
"""Statuses after which nobody knows what became of a call."""

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["ToolService"].full_name

POLL_S: Final = 0.005
"""Seconds between two looks at a connection that is being made."""

OPTIONS: Final[tuple[tuple[str, object], ...]] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class ServerChannels:
    """The connections to servers, and the headers that each is sent. Closed at the end of the executor."""

    def __init__(self, secret: Callable[[str, str], str], allowed: AllowedHosts, tls: Tls, mcp: McpBridge) -> None:
        """`secret`: the value of one by its name, for a project; raises ValueError with a sentence.

        `mcp`: what calls the servers that speak MCP.
        """
        self._secret, self._allowed, self._tls, self._mcp = secret, allowed, tls, mcp
        self._channels: dict[RegisteredServer, grpc.aio.Channel] = {}
        self._away: dict[RegisteredServer, tuple[float, str]] = {}

    async def refused(self, server: RegisteredServer) -> str:
        """Why a server may not be where it is; empty if it may, or if its host is not known now."""
        if server.is_bridged:
            # Where those may be is for the process that calls them to say.
            return ""
        try:
            async with asyncio.timeout(CONNECT_S):
                return await refusal_of(server, self._allowed)
        except (OSError, TimeoutError):
            return unreachable(server, (), self._allowed)

    def metadata(self, server: RegisteredServer) -> tuple[tuple[str, str], ...]:
        """Raises Away for a secret that is not there."""
        try:
            secrets = tuple((name, self._secret(secret, server.project)) for name, secret in server.secret_headers)
        except ValueError as error:
            raise Away(f"The header of {server.name} cannot be sent: {error}.") from None
        own = self._mcp.metadata(server) if server.is_bridged else ()
        return (*server.headers, *secrets, *own)

    async def back(self, server: RegisteredServer, end_s: float) -> grpc.aio.Channel:
        """A channel to a server that has left in a call, once it is back and says that it is well. Raises Away."""
        check = health_pb2.HealthCheckRequest(service=_SERVICE)
        # For a secret that is not there nobody has to wait.
        self.metadata(server)
        while True:
            try:
                channel = await self.ready(server, is_again=True)
                answer = await health_pb2_grpc.HealthStub(channel).Check(
                    check, timeout=HEALTH_S, metadata=self.metadata(server)
                )
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return channel
                why = f"{server.name} says that it is not ready."
            except Away as away:
                why = str(away)
            except grpc.aio.AioRpcError as error:
                if error.code() not in LOST:
                    # It does not tell of its health, but is there.
                    return channel
                why = f"{server.name}: {words(error)}"
            if time.monotonic() > end_s:
                raise Away(f"It was waited for, and was not back in time. {why}")
            await asyncio.sleep(LOOK_S)

    async def ready(self, server: RegisteredServer, *, is_again: bool = False) -> grpc.aio.Channel:
        """A channel with a connection. Raises Away, at once if it has just been away and this is not `is_again`."""
        connect_s = CONNECT_S
        if server.is_bridged:
            # It takes connections a while before it answers; one that has just been killed may take some, too.
            server, connect_s = await self._mcp.server(), CONNECT_S if is_again else START_S
        until_s, why = self._away.get(server, (0.0, ""))
        if time.monotonic() < until_s and not is_again:
            raise Away(why)
        channel = self._channels.get(server)
        if channel is not None and channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return channel
        try:
            ready = await open_server(server, self._allowed, self._tls, channel, connect_s)
        except Away as away:
            now_s = time.monotonic()
            self._away = {one: why for one, why in self._away.items() if why[0] > now_s}
            self._away[server] = now_s + AWAY_S, str(away)
            if self._channels.get(server) is channel and channel is not None:
                # Its name may stand for another address by the next time.
                del self._channels[server]
                await channel.close()
            raise
        self._away.pop(server, None)
        if ready is not channel:
            await self._keep(server, ready)
        return self._channels[server]

    def look_again(self, server: RegisteredServer) -> None:
        """Try one that was away at once when it is needed next."""
        self._away.pop(server, None)

    async def _keep(self, server: RegisteredServer, channel: grpc.aio.Channel) -> None:
        if server in self._channels:
            await channel.close()
            return
        self._channels[server] = channel
        if len(self._channels) > CONNECTIONS_MAX:
            oldest = next(iter(self._channels))
            await self._channels.pop(oldest).close()

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        await self._mcp.close()


async def open_server(
    server: RegisteredServer, allowed: AllowedHosts, tls: Tls, channel: grpc.aio.Channel | None, connect_s: float
) -> grpc.aio.Channel:
    """The channel, or a new one, with a connection. Raises Away."""
    try:
        async with asyncio.timeout(connect_s):
            made = channel or await _opened(server, allowed, tls)
    except TimeoutError:
        raise Away(f"The name {server.host} of the server {server.name} was not found in {connect_s:g} s.") from None
    except OSError as error:
        raise Away(f"The host {server.host} of the server {server.name} is not known: {error.strerror}.") from None
    except TurnwrightError as error:
        raise Away(error.message) from None
    end_s = time.monotonic() + connect_s
    # Polled: watching the state cannot be cancelled without leaving a watcher behind in the channel.
    while made.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.READY:
        if time.monotonic() > end_s:
            if channel is None:
                await made.close()
            raise Away(
                f"The server {server.name} at {server.address} could not be reached within {connect_s:g} s: see that "
                "it runs, that its address is right, and that both sides agree on TLS."
            )
        await asyncio.sleep(POLL_S)
    return made


async def _opened(server: RegisteredServer, allowed: AllowedHosts, tls: Tls) -> grpc.aio.Channel:
    """Raises Away, OSError, TurnwrightError."""
    target, options, secure = server.address, [*OPTIONS], _is_secure(server)
    if server.project:
        addresses = await _addresses_of(server)
        if why := unreachable(server, addresses, allowed):
            raise Away(why)
        target = _pinned(addresses, server.address.rpartition(":")[2])
        options.append(("grpc.default_authority", server.address))
        if secure and not tls.name:
            options.append(("grpc.ssl_target_name_override", server.host))
    if not secure:
        check_plaintext(server.address, tls, "call", "Set the server's tls to `public` or `deployment`")
        return grpc.aio.insecure_channel(target, options=options)
    if server.tls == "public" or not tls.is_on:
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(), options=options)
    return open_channel(target, options, tls)


async def refusal_of(server: RegisteredServer, allowed: AllowedHosts) -> str:
    """Why a server may not be where it is now; empty if it may. Raises OSError for a host that is not known."""
    return unreachable(server, await _addresses_of(server), allowed) if server.project else ""


async def _addresses_of(server: RegisteredServer) -> Sequence[str]:
    port = int(server.address.rpartition(":")[2])
    found = await asyncio.get_running_loop().getaddrinfo(server.host, port, type=socket.SOCK_STREAM)
    return sorted({str(one[4][0]) for one in found})


def _is_secure(server: RegisteredServer) -> bool:
    is_near = server.address.startswith("unix:") or is_loopback(server.address)
    return server.tls in ("deployment", "public") or (server.tls == "auto" and not is_near)


def _pinned(addresses: Sequence[str], port: str) -> str:
    """The target that is exactly these addresses, of one family."""
    old = [one for one in addresses if ":" not in one]
    if old:
        return "ipv4:" + ",".join(f"{one}:{port}" for one in old)
    return "ipv6:" + ",".join(f"[{one}]:{port}" for one in addresses)


def words(error: grpc.aio.AioRpcError) -> str:
    detail = " ".join((error.details() or "").replace("\0", "").split())
    return detail[:DETAIL_CHARS_MAX] or error.code().name
