"""The fenced blocks of README and docs do what they say. A block is run against a scripted stack, or read by what reads such a
file, by the language behind its fence; `ELSEWHERE` has those that other tests run. The line `<!-- shown: REASON -->` before a
block says why nothing does; commands of `turnwright` in it must still be known.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from pathlib import Path

import pytest
import yaml

from e2e.cli_process import PORTS, Bench, Process, loop_status
from polyglot.pages import GO, JAVA, PYTHON, RUST
from turnwright_kit.plugins import HOOKS, PROMPT, SECTIONS, TOOLS, VENDORS

REPO = Path(__file__).parents[2]
PAGES = [
    REPO / "README.md",
    REPO / "services" / "clients" / "python" / "README.md",
    *sorted((REPO / "docs").rglob("*.md")),
]
FENCE = re.compile(
    r"(?:^<!-- shown: (?P<shown>[^\n]+) -->\n)?^(?P<indent> *)(?P<fence>```+|~~~+)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
PROGRAMS = (PYTHON, GO, JAVA, RUST)
KINDS = {kind.group: kind.setting for kind in (HOOKS, TOOLS, SECTIONS, PROMPT, VENDORS)}
WAIT_S = 100

ELSEWHERE = {
    ("docs/runbook.md", "sh"): "tests/e2e/test_runbook.py",
    ("docs/runbook.md", "shell"): "tests/e2e/test_runbook.py",
    ("docs/clients/http.md", "sh"): "tests/e2e/test_http_page.py",
    ("docs/clients/http.md", "js"): "tests/e2e/test_http_page.py",
    ("docs/clients/typescript.md", "sh"): "tests/polyglot/test_typescript.py",
    ("docs/clients/typescript.md", "js"): "tests/polyglot/test_typescript.py",
    ("docs/clients/typescript.md", "tsx"): "tests/ui/test_client.py",
    ("docs/tools.md", "go"): "tests/polyglot/test_tools.py",
    ("docs/tools.md", "js"): "tests/polyglot/test_tools.py",
    ("docs/sandboxes.md", "toml"): "tests/contract/executor/test_sandboxes.py",
    ("docs/webhooks.md", "python"): "tests/contract/test_webhooks.py",
    ("docs/clients.md", "json"): "tests/unit/cli/test_prompt_edits.py",
} | {
    (f"docs/clients/{program.page}", language): "tests/polyglot/test_clients.py"
    for program in PROGRAMS
    for language in ("go", "java", "rust", "sh", "toml", "xml")
}


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    page: str
    line: int
    language: str
    """Empty for drawings."""
    name: str
    """The file that it is, behind the language or in its first line; empty if it is none."""
    text: str
    shown: str

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(text):
        language, _, name = match["info"].strip().partition(" ")
        body = textwrap.dedent(match["text"])
        in_comment = re.match(r"# ([\w./]+\.\w+)\b", body)
        line = text.count("\n", 0, match.start("fence")) + 1
        found.append(
            Block(page, line, language, name or (in_comment[1] if in_comment else ""), body, match["shown"] or "")
        )
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(str(page.relative_to(REPO)), page.read_text())]


def those(language: str, *, shown: bool = False) -> list[object]:
    """The blocks of a language that no other test runs."""
    wanted = [one for one in BLOCKS if one.language == language and bool(one.shown) == shown]
    return [pytest.param(one, id=one.id) for one in wanted if (one.page, language) not in ELSEWHERE]


@pytest.fixture
def bench(tmp_path) -> Bench:
    """A person's home, with an environment in `.venv`, as README has it installed."""
    made = Bench(tmp_path)
    made.script("m", '<update status="200">Done.</update>')
    shutil.copy(REPO / "services" / "turnwright_provider" / "scripts" / "hello.txt", made.scripts)
    (made.project / ".venv").symlink_to(sys.prefix)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    made.environment |= {"HOME": str(tmp_path), "PATH": path, "PYTHONPATH": str(made.project)}
    (tmp_path / "src" / "thing").mkdir(parents=True)
    return made


def run(bench: Bench, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=bench.project, env=bench.env(**env), text=True, capture_output=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_every_block_is_run_or_says_why_it_is_shown() -> None:
    known = {"", "sh", "python", "toml"}
    silent = [
        one.id
        for one in BLOCKS
        if not one.shown and one.language not in known and (one.page, one.language) not in ELSEWHERE
    ]
    assert silent == [], "run these blocks in this file, or write `<!-- shown: REASON -->` on the line before each"
    assert {path for path in ELSEWHERE.values() if not (REPO / path).exists()} == set()
    needless = [one.id for one in BLOCKS if one.shown and (one.page, one.language) in ELSEWHERE]
    assert needless == []


def test_a_block_is_cut_with_its_reason_its_language_and_its_name() -> None:
    text = "a\n```sh\nls\n```\n<!-- shown: it needs a moon -->\n```python\n# moon.py\nx\n```\n- b\n\n  ~~~toml a/b.toml\n  y\n  ~~~\n"
    assert [(one.line, one.language, one.name, one.text, one.shown) for one in blocks_of("p.md", text)] == [
        (2, "sh", "", "ls\n", ""),
        (6, "python", "moon.py", "# moon.py\nx\n", "it needs a moon"),
        (12, "toml", "a/b.toml", "y\n", ""),
    ]


class Vendor(BaseHTTPRequestHandler):
    """An OpenAI-compatible server that has done everything already."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": '<update status="200">Done.</update>'}
        self._send({"model": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": "qwen3-coder"}, {"id": "z-ai/glm-4.6"}]})

    def _send(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_told: object) -> None:
        """Nothing: tests are quiet."""


@pytest.fixture
def vendor() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Vendor)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("block", those("sh"))
def test_commands_run(bench, vendor, block) -> None:
    """As they stand; but servers are where this test has one."""
    for other in BLOCKS:
        if other.page == block.page and other.language == "python" and other.name:
            (bench.project / other.name).write_text(other.text)
    script = block.text.replace("127.0.0.1:8080", vendor)
    run(bench, "bash", "-euxo", "pipefail", "-c", script, OPENROUTER_BASE_URL=f"http://{vendor}/api/v1")


def command_lines() -> list[object]:
    """What shown blocks, and the comments and notes of deploy/, have `turnwright` do."""
    lines = [
        (f"{one.id}:{number}", line)
        for one in BLOCKS
        if one.shown and one.language == "sh"
        for number, line in enumerate(one.text.replace("\\\n", " ").splitlines())
        if re.match(r"(\S+/)?turnwright ", line)
    ]
    lines += [
        (f"{file.relative_to(REPO)}:{number}", line)
        for file in sorted((REPO / "deploy").rglob("*"))
        if file.suffix in (".yaml", ".txt")
        for number, line in enumerate(re.findall(r"^#? +(?:\w+=\S+ )?(turnwright .*)", file.read_text(), re.MULTILINE))
    ]
    return [pytest.param(line, id=place) for place, line in lines]


@pytest.mark.parametrize("line", command_lines())
def test_shown_commands_are_known(bench, line) -> None:
    words = takewhile(lambda word: word != "--", shlex.split(line, comments=True)[1:])
    run(bench, sys.executable, "-m", "turnwright_cli", *words, "--help")


@pytest.fixture
def served(bench) -> Iterator[tuple[str, str]]:
    """Where the executor of a stack in this home is, and its token."""
    with bench.running("serve", *PORTS) as process:
        yield executor_of(process), (bench.home / "token").read_text().strip()


def executor_of(process: Process) -> str:
    return process.wait_for(r"^executor serves at (\S+)", "err")[1]


def programs(*, are_plugins: bool) -> list[object]:
    return [
        one
        for one in those("python")
        if ("def register(" in one.values[0].text or "registry" in one.values[0].text) == are_plugins
    ]


SNIPPET = """
import asyncio, os
from turnwright_client import Client

async def main():
    async with Client.connect("127.0.0.1:7440", os.environ["TOKEN"]) as client:
        project = (await client.init_project(os.getcwd())).name
{}

asyncio.run(main())
"""


@pytest.mark.parametrize("block", programs(are_plugins=False))
def test_a_program_runs(bench, served, block) -> None:
    """With the project and a run that has ended as its arguments, as far as it takes any."""
    address, token = served
    act = bench.run("act", "Do it.", "--run", "r", "--model", "m", "--yolo", "--json")
    assert loop_status(act.stdout) == 200
    is_whole = re.search(r"asyncio\.run|SyncClient\.connect", block.text)
    whole = block.text if is_whole else SNIPPET.format(textwrap.indent(block.text, " " * 8))
    project = json.loads(bench.run("runs", "--json").stdout.splitlines()[0])["project"]
    arguments = (address, str(bench.project), "m", "Do it.") if block.name == "client.py" else (project, "r")
    done = run(bench, sys.executable, "-c", whole.replace("127.0.0.1:7440", address), *arguments, TOKEN=token)
    assert done.stderr == ""
    if block.page == "README.md":
        assert "Hello. I am a written reply" in done.stdout
        assert re.search(r"done [1-9]\d*\n\Z", done.stdout)


@pytest.mark.parametrize("block", programs(are_plugins=True))
def test_a_plugin_takes_part_and_its_model_answers(bench, block) -> None:
    """Loaded as its page has it installed: by the entry points of its page, or of its first line."""
    name = (block.name or "tides.py").removesuffix(".py")
    (bench.project / f"{name}.py").write_text(block.text)
    loaded = {setting: f"{name}:{target}" for setting, target in targets_of(block, name)}
    assert loaded
    model = "echo/hi" if VENDORS.setting in loaded else "m"
    done = bench.run("act", "Do it.", "--model", model, "--json", **loaded)
    assert (done.returncode, loop_status(done.stdout)) == (0, 200), done.stderr
    printed = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    assert printed == []


def targets_of(block: Block, name: str) -> Iterator[tuple[str, str]]:
    if found := re.match(r'# \S+, named by `\w+ = "\w+:(\w+)"` in the group ([\w.]+)', block.text):
        yield KINDS[found[2]], found[1]
        return
    for other in BLOCKS:
        if other.page == block.page and "entry-points" in other.text:
            for group, points in tomllib.loads(other.text)["project"]["entry-points"].items():
                yield from (
                    (KINDS[group], point.partition(":")[2]) for point in points.values() if point.startswith(f"{name}:")
                )


@pytest.mark.parametrize("block", those("toml"))
def test_a_file_is_read(bench, block) -> None:
    values = tomllib.loads(block.text)
    if "project" in values:
        sources = "".join(other.text for other in BLOCKS if other.page == block.page and other.language == "python")
        for group, points in values["project"]["entry-points"].items():
            assert group in KINDS
            for point in points.values():
                assert re.search(rf"^(?:def|class) {point.partition(':')[2]}\b", sources, re.MULTILINE)
        return
    if "endpoint" in values:
        (bench.home / "xai-eu.key").write_text("k\n")
        (bench.home / "xai-eu.key").chmod(0o600)
        (bench.home / "endpoints.toml").write_text(block.text)
        listed = bench.run("doctor", WORK_KEY="k").stdout
        assert all(name in listed for name in values["endpoint"])
        return
    settings = bench.root / ".config" / "turnwright" / "turnwright.toml"
    settings.parent.mkdir(parents=True)
    own, project = (block.text, "") if "models" in values else (BLOCKS[BLOCKS.index(block) - 1].text, block.text)
    settings.write_text(own)
    (bench.project / "turnwright.toml").write_text(project)
    assert "openai/qwen3-coder" in bench.run("models").stdout
    assert bench.run("ask", "Say it.", "--model", "m").returncode == 0


@pytest.mark.parametrize("block", those("yaml", shown=True))
def test_a_shown_file_is_one(block) -> None:
    assert yaml.safe_load(block.text)
