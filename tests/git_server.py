"""Git servers that ask for credentials, by HTTP and by ssh."""

import asyncio
import base64
import http.server
import os
import shlex
import subprocess
import threading
from http import HTTPStatus

import asyncssh

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


class SshGitServer:
    """`git-upload-pack` for whoever has the key, with repositories of a folder. An asynchronous context manager."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.key, self._host_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))

    async def __aenter__(self):
        self._listener = await asyncssh.listen(
            *("127.0.0.1", 0),
            server_host_keys=[self._host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(self.key.export_public_key().decode()),
            process_factory=self._serve,
            encoding=None,
        )
        self._port = self._listener.get_port()
        self.url = f"ssh://git@127.0.0.1:{self._port}"
        return self

    async def __aexit__(self, *_error) -> None:
        self._listener.close()
        await self._listener.wait_closed()

    def known_as(self, key=None) -> str:
        """The line of a file of known hosts, with its key or another one."""
        return f"[127.0.0.1]:{self._port} {(key or self._host_key).export_public_key().decode()}"

    async def _serve(self, process) -> None:
        program, path = shlex.split(process.command)
        assert program == "git-upload-pack"
        pipe = asyncio.subprocess.PIPE
        git = await asyncio.create_subprocess_exec(
            *("git", "-c", "safe.directory=*", "upload-pack", f"{self.folder}{path}"),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
        )
        given = asyncio.create_task(_copy(process.stdin, git.stdin))
        await asyncio.gather(_copy(git.stdout, process.stdout), _copy(git.stderr, process.stderr))
        given.cancel()
        await asyncio.gather(given, return_exceptions=True)
        process.exit(await git.wait())


async def _copy(source, target) -> None:
    while piece := await source.read(65536):
        target.write(piece)
        await target.drain()
    if isinstance(target, asyncio.StreamWriter):
        target.close()
