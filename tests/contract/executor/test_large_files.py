"""Files of any size are named, listed and removed at the cost of a look; no run waits for them. Rows RU024, RU204."""

import asyncio

import pytest

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
VAST_BYTES = 200 * 1024**3


async def test_files_of_any_size_hold_up_no_run(services):
    for number in range(8):
        with (services.files / f"vast{number}.bin").open("wb") as file:
            file.truncate(VAST_BYTES)
    services.script(f'<get path="*.bin"/>{DONE}', f'<get path="vast3.bin"/>{DONE}')
    queued = [await services.act(run=f"r{number}") for number in range(8)]
    await asyncio.gather(*map(services.until, queued))
    (record,) = [entry async for entry in services.client.list_entries(services.project, "r3", "log://turn_1/get/*")]
    assert record.body.splitlines() == [f"vast{number}.bin: no text" for number in range(8)]


async def test_a_file_of_any_size_is_removed_unless_it_has_changed(services):
    with (services.files / "vast.bin").open("wb") as file:
        file.truncate(VAST_BYTES)
    services.script(f'<rm path="vast.bin"/>{DONE}')
    await services.until(await services.act())
    assert not (services.files / "vast.bin").exists()
