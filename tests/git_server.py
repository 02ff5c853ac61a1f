"""A git server by HTTP that asks for credentials."""

import base64
import http.server
import os
import subprocess
import threading
from http import HTTPStatus

CREDENTIALS = base64.b64encode(b"robot:swordfish").decode()


class GitServer:
    """`git http-backend` behind basic authentication, with repositories of a folder."""

    def __init__(self, folder) -> None:
        self.folder, self.seen, self.hold, self.redirect = folder, [], threading.Event(), ""
        self.hold.set()
        self.hold_from = 0
        """From which request on nothing is answered; 0: none."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self) -> None:
                outer.serve(self)

            do_POST = do_GET  # noqa: N815 - the name of the library

            def log_message(self, *_args) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def serve(self, asked) -> None:
        self.seen.append((asked.path, asked.headers.get("Authorization", "")))
        path, _, query = asked.path.partition("?")
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        if self.hold_from and len(self.seen) >= self.hold_from:
            return
        self.hold.wait(60)
        if self.redirect:
            asked.send_response(HTTPStatus.FOUND)
            asked.send_header("Location", self.redirect + asked.path)
            asked.end_headers()
            return
        if asked.headers.get("Authorization") != f"Basic {CREDENTIALS}":
            asked.send_response(HTTPStatus.UNAUTHORIZED)
            asked.send_header("WWW-Authenticate", "Basic")
            asked.end_headers()
            return
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": asked.command,
            "CONTENT_TYPE": asked.headers.get("Content-Type", ""),
            "REMOTE_USER": "robot",
        }
        if protocol := asked.headers.get("Git-Protocol"):
            environment["GIT_PROTOCOL"] = protocol
        if asked.headers.get("Content-Encoding"):
            environment["HTTP_CONTENT_ENCODING"] = asked.headers["Content-Encoding"]
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        asked.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            asked.send_header(name, value)
        asked.end_headers()
        asked.wfile.write(rest)

    def close(self) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()


def believe(root, text=f"[http]\n\textraHeader = Authorization: Basic {CREDENTIALS}\n") -> None:
    folder = root / "home" / "git"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config").write_text(text)
