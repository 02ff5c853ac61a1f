"""The four services with the scripted model `m`, and plugins for them."""

import sys
import textwrap
from contextlib import asynccontextmanager

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
