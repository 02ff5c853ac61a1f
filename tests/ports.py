"""Ports for servers that cannot be asked for the one that they got."""

from __future__ import annotations

import contextlib
import random
import socket

BELOW = 32_768
"""From here on the kernel gives ports to whoever asks for any: one of these could be taken before its server is there."""


def free_ports(wanted: int) -> list[int]:
    """Ports of this host at which nobody listens."""
    dice = random.SystemRandom()
    with contextlib.ExitStack() as found:
        ports: list[int] = []
        while len(ports) < wanted:
            port = dice.randrange(20_000, BELOW)
            with contextlib.suppress(OSError):
                found.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
        return ports
