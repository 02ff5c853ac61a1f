"""Whatever a command or a repository puts in the way, no file outside of a project becomes an entry or part of a packet.

Architecture 6; rows RU113, RU204.
"""

import subprocess

import pytest
from turnwright.types.v1.project_pb2 import FILE_CONSTRAINT_KIND_ADD as ADD
from turnwright.types.v1.project_pb2 import FILE_CONSTRAINT_KIND_READONLY as READONLY

from turnwright_core.errors import InvalidError

pytestmark = pytest.mark.asyncio

SECRET = "the secret of somebody else"
GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'


@pytest.fixture
def outside(services):
    folder = services.root / "others"
    folder.mkdir()
    (folder / "token").write_text(SECRET)
    return folder


def git(services, *arguments):
    subprocess.run(["git", *arguments], cwd=services.files, check=True, capture_output=True)


async def told(services):
    """All entries of the run as a model reads them, and its packets."""
    entries = [entry async for entry in services.client.list_entries(services.project, "r", "**")]
    entries += [entry async for entry in services.client.list_entries(services.project, "r", "*://**")]
    packets = [await services.entry(f"user://{turn}") for turn in (1, 2, 3)]
    return "\n".join(entry.body for entry in (*entries, *packets))


async def test_a_folder_that_a_command_swaps_for_a_link_is_not_read_through_it(services, outside):
    (services.files / "a").mkdir()
    (services.files / "a" / "token").write_text("mine")
    git(services, "init", "-q")
    git(services, "add", ".")
    swap = f'<sh command="rm -r a && ln -s {outside} a"/>'
    services.script(swap + GO_ON, '<get path="a/token"/><get path="**"/>' + GO_ON, DONE)
    await services.until(await services.act())
    text = await told(services)
    assert ("rm -r a" in text, SECRET in text) == (True, False)


async def test_what_an_unpacked_repository_brings_along_is_not_read_through_links(services, outside):
    (services.files / "a").mkdir()
    (services.files / "a" / "token").write_text("mine")
    git(services, "init", "-q")
    git(services, "add", ".")
    (services.files / "a" / "token").unlink()
    (services.files / "a").rmdir()
    (services.files / "a").symlink_to(outside)
    services.script(f'<get path="**"/>{GO_ON}', GO_ON, DONE)
    await services.until(await services.act())
    assert SECRET not in await told(services)


async def test_a_constraint_does_not_reach_beyond_the_project(services, outside):
    (services.files / "link").symlink_to(outside)
    for pattern in ("../**", "../others/token", str(outside / "*")):
        with pytest.raises(InvalidError, match="below the project's root"):
            await services.client.set_file_constraints(services.project, {pattern: ADD})
    await services.client.set_file_constraints(services.project, {"link/*": ADD, "link/token": READONLY})
    services.script(GO_ON, GO_ON, DONE)
    await services.until(await services.act())
    assert SECRET not in await told(services)
