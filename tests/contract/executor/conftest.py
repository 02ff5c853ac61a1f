"""The four services with the scripted model `m`, and plugins for them."""

import sys
import textwrap
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import pytest_asyncio

from services import running
from sse_server import SseServer


@pytest_asyncio.fixture
async def services(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as made:
        (made.files / "a.txt").write_text("old\n")
        yield made


# ---- One stack for the tests of a module: each has a project of its own, and all run in the loop of the module.


@pytest.fixture(scope="module")
def shared_root(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def shared_settings():
    """What a module sets of its executor."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_stack(shared_database, shared_root, shared_settings):
    root = shared_root / (shared_database.rpartition("/")[2] or "sqlite")
    root.mkdir()
    async with AsyncExitStack() as stopping:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
            if shared_database:
                patch.setenv("TURNWRIGHT_DB", shared_database)
            made = await stopping.enter_async_context(running(root, **shared_settings))
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def shared_services(shared_stack):
    """For tests that restart nothing, set nothing and count nothing of a service."""
    number = sum(1 for _ in shared_stack.root.glob("project*"))
    made = await shared_stack.with_project(f"project_{number}")
    (made.files / "a.txt").write_text("old\n")
    return made


@pytest.fixture
def own_database(shared_database, request, monkeypatch):
    """What a stack of the test's own needs: the model, and a database of the kind that the others share."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    if shared_database:
        monkeypatch.setenv("TURNWRIGHT_DB", request.getfixturevalue("postgres_url"))


@pytest_asyncio.fixture(loop_scope="module")
async def own_services(tmp_path, own_database):
    """A stack for one test of a module whose other tests share one."""
    async with running(tmp_path) as made:
        (made.files / "a.txt").write_text("old\n")
        yield made


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Writes a module that the executor can import; the module afterwards."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")

    def write(name: str, text: str) -> str:
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return f"{name}:register"

    return write


NAP = """
import asyncio, pathlib

from turnwright_executor.plugins import Done, PluginTool

GO = pathlib.Path({folder!r}) / "go"


class Nap(PluginTool):
    name = "nap"
    doc = "## <nap/> - sleeps"

    async def prepare(self, command, context):
        while not GO.exists():
            await asyncio.sleep(0.01)
        return Done("slept")


def register(registry):
    registry.tool(Nap())
"""


@pytest.fixture
def nap(plugin, tmp_path):
    """A plugin whose tool `nap` takes until there is a file `go`."""
    return plugin("napping", NAP.format(folder=str(tmp_path)))


@pytest.fixture
def over_http(monkeypatch):
    """Gives these answers in the place of the vendor of the model `m`."""

    @asynccontextmanager
    async def serving(*answers):
        async with SseServer(list(answers)) as server:
            monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", "k")
            yield server

    return serving


@pytest.fixture
def shop(tmp_path):
    """The directory of a project on a sandbox host, beside one of others."""
    for name, text in (
        ("shop/a.txt", "old\n"),
        ("shop/guide.md", "# Guide\nUse it.\n"),
        ("other/canary.txt", "secret\n"),
    ):
        file = tmp_path / "there" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "there" / "shop"
