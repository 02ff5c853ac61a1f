"""A server started as most systems start one, with few open files, takes as many connections as its port for HTTP allows."""

from __future__ import annotations

import resource
import socket

import pytest

from e2e.cli_process import PORTS, Bench

FEW, CONNECTIONS = 128, 200
WAIT_S = 30


class OfFewFiles(Bench):
    """Its commands begin with few open files, and may have more."""

    def command(self, *arguments: str) -> list[str]:
        return ["bash", "-c", f'ulimit -Sn {FEW}; exec "$@"', "bash", *super().command(*arguments)]


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2 * CONNECTIONS, reason="needs more open files")
def test_connections_of_strangers_leave_a_server_files_to_open(tmp_path) -> None:
    bench = OfFewFiles(tmp_path)
    with bench.running("serve", *PORTS, "--listen", "http=127.0.0.1:0") as served:
        port = int(served.wait_for(r"^HTTP is served at \S+:(\d+)", "err")[1])
        held = []
        try:
            for _ in range(CONNECTIONS):
                held.append(one := socket.create_connection(("127.0.0.1", port), timeout=WAIT_S))
                one.sendall(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n")
                # It stays open, and waits for another request for longer than this waits for an answer.
                assert one.recv(4096).startswith(b"HTTP/1.1 404 ")
        finally:
            for one in held:
                one.close()
