"""Channels: TLS, or plaintext where nobody else can listen.

Certificates are reloaded without a restart: a channel connects anew once they have changed. Unix sockets are always
plaintext: the kernel guards them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import grpc

from turnwright_core.errors import Reason, fault
from turnwright_core.rpc.certificates import Tls

Options = Sequence[tuple[str, object]]

RETIRE_S: Final = 600.0
"""Seconds that calls of a channel with the certificates of before may go on. Watches that are longer reconnect."""

DNS_MS_MIN: Final = 1000
"""Milliseconds between two look-ups of a name whose replicas cannot be reached.

gRPC's default is 30 seconds, in which a deployment can replace every replica that the last answer named.
"""

RECONNECT_WAIT_S: Final = 2.0
"""Seconds that a call waits for a lost connection to come back, before it is tried anyway."""

RECONNECT_POLL_S: Final = 0.02
"""Seconds between checks whether it is back."""


PLAINTEXT: Final = Tls()
"""Plaintext, within this host."""

INSECURE: Final = "TURNWRIGHT_INSECURE=true"
BY_SETTINGS: Final = ("Set TURNWRIGHT_TLS_CA", INSECURE)
"""How a process that reads settings gets TLS, and how it does without."""


def open_channel(address: str, options: Options, tls: Tls, remedies: tuple[str, str] = BY_SETTINGS) -> grpc.aio.Channel:
    """A channel to an address. Raises TurnwrightError if it would send the token in plaintext to another host."""
    if address.startswith("dns:"):
        # Such a name has an address for each replica; calls take turns.
        replicas = (("grpc.lb_policy_name", "round_robin"), ("grpc.dns_min_time_between_resolutions_ms", DNS_MS_MIN))
        options = (*options, *replicas)
    if not tls.is_on or is_socket(address):
        check_plaintext(address, tls, "call", *remedies)
        plain: grpc.aio.Channel = grpc.aio.insecure_channel(address, options=options)
        return plain
    if tls.name:
        options = (*options, ("grpc.ssl_target_name_override", tls.name))
    # It has everything that stubs and peers use of a channel.
    return cast("grpc.aio.Channel", ReloadingChannel(tls, address, options))


def check_plaintext(address: str, tls: Tls, act: str, remedy: str, insecure: str = INSECURE) -> None:
    if not (tls.insecure or is_socket(address) or is_loopback(address)):
        raise fault(
            Reason.INVALID_FIELD,
            f"Turnwright does not {act} {address} in plaintext, because others could read the token. {remedy}, or "
            f"{insecure} if a mesh or a private network protects the connection.",
            field="address",
        )


async def wait_for_connection(channel: grpc.aio.Channel) -> None:
    """Wait briefly for a restarted service to come back, before a call is sent."""
    failing = grpc.ChannelConnectivity.TRANSIENT_FAILURE
    if channel.get_state(try_to_connect=True) is not failing:
        return
    # Polled: watching the state cannot be cancelled without leaving a watcher behind in the channel.
    end_s = time.monotonic() + RECONNECT_WAIT_S
    while time.monotonic() < end_s:
        await asyncio.sleep(RECONNECT_POLL_S)
        if channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return


class ReloadingChannel:
    """A TLS channel that reconnects when the certificates have changed. It has the methods that stubs and peers use."""

    def __init__(self, tls: Tls, address: str, options: Options) -> None:
        self._tls, self._address, self._options = tls, address, options
        self._used = tls.current()
        self._channel = self._open()
        self._retiring: set[asyncio.Task[None]] = set()

    def _open(self) -> grpc.aio.Channel:
        used = self._used
        credentials = grpc.ssl_channel_credentials(used.authorities or None, used.key or None, used.chain or None)
        return grpc.aio.secure_channel(self._address, credentials, options=self._options)

    def _current(self) -> grpc.aio.Channel:
        if (found := self._tls.current()) is not self._used:
            old, self._used = self._channel, found
            self._channel = self._open()
            retiring = asyncio.create_task(old.close(RETIRE_S), name="retiring channel")
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)
        return self._channel

    def unary_unary(self, *method: object, **more: object) -> Callable[..., object]:
        return self._method("unary_unary", method, more)

    def unary_stream(self, *method: object, **more: object) -> Callable[..., object]:
        return self._method("unary_stream", method, more)

    def stream_unary(self, *method: object, **more: object) -> Callable[..., object]:
        return self._method("stream_unary", method, more)

    def stream_stream(self, *method: object, **more: object) -> Callable[..., object]:
        return self._method("stream_stream", method, more)

    def _method(self, kind: str, method: tuple[object, ...], more: dict[str, object]) -> Callable[..., object]:
        opened: tuple[object, Any] = (None, None)

        def call(*request: object, **options: object) -> object:
            nonlocal opened
            channel = self._current()
            if opened[0] is not channel:
                opened = (channel, getattr(channel, kind)(*method, **more))
            return opened[1](*request, **options)

        return call

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._current().get_state(try_to_connect)

    async def close(self, grace: float | None = None) -> None:
        """Close, and cut off the calls of earlier channels too."""
        for retiring in self._retiring:
            retiring.cancel()
        await self._channel.close(grace)


def is_socket(address: str) -> bool:
    return address.startswith(("unix:", "unix-abstract:"))


def is_loopback(address: str) -> bool:
    """Whether only this host is on the other side. A name other than localhost may lead anywhere."""
    host = address.rsplit("/", 1)[-1].rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
