"""Connections to servers of tools, pinned to addresses that were looked at where a project's owner named the host."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from typing import Final

import grpc

from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import MESSAGE_BYTES_MAX
from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.transport import check_plaintext, is_loopback, open_channel
from turnwright_executor.domain.tool_servers import AllowedHosts, RegisteredServer, unreachable

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


class Away(Exception):  # noqa: N818 - a state, in a word
    """A server cannot be called; the text says why, and what to do."""


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
