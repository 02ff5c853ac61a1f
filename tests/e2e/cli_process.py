"""The command line in real processes, with a home, a project and written replies of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

WAIT_S = 60


PORTS = (
    *("--listen", "127.0.0.1:0"),
    *("--listen", "store=127.0.0.1:0"),
    *("--listen", "assembler=127.0.0.1:0"),
    *("--listen", "provider=127.0.0.1:0"),
    *("--listen", "http="),
)
"""Options of `serve` with which several can run at once."""


@dataclass
class Bench:
    """A directory with a home, a project and scripts; runs `turnwright` in it.

    With `stack`, the directory of a stack that serves already, its home and its scripts are used.
    """

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    stack: Path | None = None

    def __post_init__(self) -> None:
        for folder in (self.home, self.project, self.scripts):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def home(self) -> Path:
        return (self.stack or self.root) / "home"

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def scripts(self) -> Path:
        return (self.stack or self.root) / "scripts"

    def script(self, name: str, *replies: str) -> None:
        """A model `name` that gives these replies; a reply that begins with `===` brings its own line."""
        text = "\n".join(
            reply if reply.startswith("===") else f"=== reply delay_ms=0 ===\n{reply}" for reply in replies
        )
        (self.scripts / f"{name}.txt").write_text(text + "\n")
        self.environment[f"TURNWRIGHT_MODEL_{name}"] = f"scripted/{name}"

    def env(self, **more: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TURNWRIGHT_", "OPENAI_"))}
        ours = {
            "TURNWRIGHT_HOME": str(self.home),
            "TURNWRIGHT_SCRIPTED_DIR": str(self.scripts),
            "TURNWRIGHT_LAME_DUCK_S": "0",
            # What a command may do must not depend on what the host has installed.
            "TURNWRIGHT_SH_SANDBOX": "limits",
        }
        return {**inherited, **ours, **self.environment, **more}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "turnwright_cli", *arguments]

    def run(self, *arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run to the end, in the project's directory, without a terminal."""
        return subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.project,
            env=self.env(**env),
            timeout=WAIT_S,
            check=False,
        )

    @contextmanager
    def running(self, *arguments: str, **env: str) -> Iterator[Process]:
        """A process for the time of the block; killed where it is still there at the end."""
        process = Process(
            subprocess.Popen(
                self.command(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=self.project,
                env=self.env(**env),
            )
        )
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def serving(root: Path, *models: str, **environment: str) -> Iterator[Path]:
    """The directory of a stack that tests share; each brings a project of its own, and scripts for these models."""
    bench = Bench(root, environment)
    for model in models:
        bench.script(model)
    with bench.running("serve", *PORTS) as served:
        served.wait_for("^executor serves at ", "err")
        yield root


class Process:
    """A started command whose output is collected as it comes."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.lines: dict[str, list[str]] = {"out": [], "err": []}
        self._news = threading.Condition()
        self._ended: set[str] = set()
        """Streams of which everything has been read."""
        streams = {"out": popen.stdout, "err": popen.stderr}
        self._readers = [threading.Thread(target=self._read, args=item) for item in streams.items()]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, stream) -> None:
        for line in stream:
            with self._news:
                self.lines[name].append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended.add(name)
            self._news.notify_all()

    def wait_for(self, pattern: str, stream: str = "out") -> re.Match[str]:
        """The first line that matches. Fails when the output ends, or nothing comes, before there is one."""

        def found():
            return next((m for line in self.lines[stream] if (m := re.search(pattern, line))), None)

        with self._news:
            self._news.wait_for(lambda: found() or stream in self._ended, WAIT_S)
            match = found()
        told = "\n".join(line[:200] for line in [*self.lines["out"][-5:], *self.lines["err"]])
        assert match, f"{pattern!r} did not come on {stream}; exit code {self.popen.poll()}; the last lines:\n{told}"
        return match

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def end(self) -> int:
        """Wait for the exit code."""
        code = self.popen.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        return code

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.end()

    def kill(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for reader in self._readers:
            reader.join(WAIT_S)
        for stream in (self.popen.stdout, self.popen.stderr):
            stream.close()


def json_lines(text: str) -> list[dict]:
    """Every line as a message; anything else on standard output is a fault."""
    return [json.loads(line) for line in text.splitlines()]


def loop_status(text: str) -> int:
    """The status that the last line carries."""
    return json_lines(text)[-1]["run_state"]["loop"]["status"]


def run_alias(text: str) -> str:
    """The run that JSON lines tell of."""
    return next(m["run_state"]["run"]["run"] for m in json_lines(text) if "run_state" in m)
