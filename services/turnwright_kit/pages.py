"""Small HTTP pages for those who look at a process: its metrics, and whether it is ready.

Each page has threads of its own, because it must answer when the process does not. Connections are bounded in number
and in time: one more ends the oldest, so connections that send nothing keep nobody away.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

Start = Callable[[str, list[tuple[str, str]]], object]
App = Callable[[dict[str, object], Start], Iterable[bytes]]

CONNECTIONS_MAX: Final = 16
"""Connections of one page at a time."""

REQUEST_S: Final = 5.0
"""Seconds that a connection may be silent."""

READY_PATH: Final = "/ready/"


class HttpPage:
    """One address with a WSGI application, in threads."""

    def __init__(self, address: str, app: App) -> None:
        """Serve. Raises OSError if the address cannot be used."""
        host, _, port = address.rpartition(":")
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        self._server = _Server(family, place, app)
        threading.Thread(target=self._server.serve_forever, name="page", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # Connections that wait to be accepted. By default 5 do, and one more is tried again after a second.
    request_queue_size = 128

    def __init__(self, family: int, place: Any, app: App) -> None:
        self.address_family = family
        self._open: dict[socket.socket, None] = {}
        """Connections, the oldest first."""
        self._lock = threading.Lock()
        super().__init__(place, _Handler)
        self.set_app(app)

    def process_request(self, request: Any, client_address: object) -> None:
        with self._lock:
            if len(self._open) >= CONNECTIONS_MAX:
                oldest = next(iter(self._open))
                del self._open[oldest]
                # Its thread reads an end.
                oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: whoever leaves in the middle of a page is no error of ours."""


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_S

    def log_message(self, *_: object) -> None:
        """Nothing: pages are read every few seconds."""


def answered(start: Start, status: str, text: str) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{text}\n".encode()]


_problems: Final[dict[str, Callable[[], str]]] = {}
"""By service, why it is not ready; empty if it is."""


def report_readiness(service: str, problem: Callable[[], str]) -> None:
    """Have `/ready/SERVICE` say, from another thread, why a service is not ready; empty if it is."""
    _problems[service] = problem


def serve_readiness(address: str) -> Callable[[], None]:
    """Serve `/ready/SERVICE`; returns what ends it. Without an address, nothing is served.

    Raises OSError if the address cannot be used.
    """
    return HttpPage(address, _ready).stop if address else lambda: None


def _ready(request: dict[str, object], start: Start) -> Iterable[bytes]:
    path = str(request["PATH_INFO"])
    if not path.startswith(READY_PATH):
        return answered(start, "404 Not Found", f"Ask for {READY_PATH}SERVICE.")
    look = _problems.get(path.removeprefix(READY_PATH))
    problem = look() if look else "it has not started"
    return answered(start, "503 Service Unavailable" if problem else "200 OK", problem or "ready")
