"""A further run of a project is shown its files as they are on disk. Rows RU115, RU165, RU168, RU204."""

import pytest
from turnwright.types.v1 import entry_pb2

from turnwright_core.errors import MissingError

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'


async def test_a_second_run_sees_the_files_as_they_are_now(services):
    """What changed, came and went since the run before looked; what is no text has the size that it has now."""
    for name in ("same", "changed", "gone"):
        (services.files / f"{name}.txt").write_text(f"{name}\n")
    (services.files / "data.bin").write_bytes(b"\xff\xfe")
    services.script(DONE, DONE)
    await services.until(await services.act(run="r"))
    (services.files / "changed.txt").write_text("other text\n")
    (services.files / "gone.txt").unlink()
    (services.files / "new.txt").write_text("new\n")
    (services.files / "data.bin").write_bytes(b"\xff\xfe\xfd")
    await services.until(await services.act(run="s"))
    for name, body in (("same", "same\n"), ("changed", "other text\n"), ("new", "new\n")):
        entry = await services.entry(f"{name}.txt", "s")
        assert (entry.body, entry.visibility) == (body, entry_pb2.VISIBILITY_ARCHIVED)
    with pytest.raises(MissingError):
        await services.entry("gone.txt", "s")
    assert (await services.entry("gone.txt", "r")).body == "gone\n"
    assert '"bytes":3' in (await services.entry("data.bin", "s")).attributes_json.replace(" ", "")
    manifest = (await services.entry("log://turn_0/repo/manifest", "s")).body.split("\n")
    assert [line.split(" ")[1] for line in manifest] == ["a.txt", "changed.txt", "data.bin", "new.txt", "same.txt"]
    assert "* changed.txt - 6 tokens" in manifest
