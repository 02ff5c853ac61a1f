"""An executor is killed while it clones: there is a whole project or none, and the next request makes it. ADR 88."""

import asyncio

import pytest

from contract.executor.repositories import git, repository
from crash.stack import ENDURING, insisted, started
from git_server import GitServer, believe
from turnwright_client import Client

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("request_no", [2, *(pytest.param(number, marks=pytest.mark.soak) for number in (1, 3))])
async def test_a_clone_that_was_killed_is_made_again_whole(tmp_path, request_no):
    """At the first request of git it asks for branches, at the next ones it fetches."""
    shop = tmp_path / "served" / "shop"
    shop.mkdir(parents=True)
    repository(shop)
    server = GitServer(tmp_path / "served")
    try:
        async with started(tmp_path, git_urls=server.url) as stack:
            believe(tmp_path)
            life = stack.lives["executor0"]
            server.hold_from = request_no
            async with Client.connect(stack.at("executor0"), stack.secret, policy=ENDURING) as client:
                lost = asyncio.create_task(client.init_project("", git_url=f"{server.url}/shop"))
                async with asyncio.timeout(60):
                    while len(server.seen) < request_no:  # noqa: ASYNC110 - the server is a thread
                        await asyncio.sleep(0.01)
                life.kill()
                lost.cancel()
                await asyncio.wait((lost,))
                made = tmp_path / "home" / "projects"
                assert [folder.name for folder in made.iterdir() if "~" not in folder.name] == []
                server.hold_from = 0
                life.start()
                project = await insisted(lambda: client.init_project("", git_url=f"{server.url}/shop"))
            assert git(project.root, "status", "--porcelain") == ""
            assert git(project.root, "log", "--format=%s") == "Begin"
    finally:
        server.close()
