"""A copy of a project's directory is a project of its own. Architecture 3."""

import shutil

import pytest

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'


async def test_what_waits_in_a_project_is_done_there_and_not_in_a_copy_of_it(services):
    services.script(f'<set path="b.txt">one</set>{DONE}')
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    copy = services.root / "copy"
    shutil.copytree(services.files, copy)
    made = await services.client.init_project(str(copy))
    again = await services.client.init_project(str(copy))
    assert (made.name != services.project, made.copied_from, again.copied_from) == (True, str(services.files), "")
    assert (again.name, again.root, again.workspace_id) == (made.name, made.root, made.workspace_id)
    for path in [item.proposal.path async for item in services.client.list_proposals()]:
        await services.client.resolve(services.project, "r", path, accept=True)
        copied = await services.client.init_project(str(copy))
        assert copied.name == made.name
    await services.until(queued)
    assert sorted(file.name for file in services.files.glob("*.txt")) == ["a.txt", "b.txt"]
    assert sorted(file.name for file in copy.glob("*.txt")) == ["a.txt"]
