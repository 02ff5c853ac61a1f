"""The four services with the scripted model `m`."""

import pytest_asyncio

from services import running


@pytest_asyncio.fixture
async def services(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as made:
        (made.files / "a.txt").write_text("old\n")
        yield made
