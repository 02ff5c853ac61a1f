"""The four services with the scripted model `m`, and plugins for them."""

import sys
import textwrap

import pytest
import pytest_asyncio

from services import running


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
