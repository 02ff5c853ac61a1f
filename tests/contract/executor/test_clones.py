"""Projects that are clones of git repositories, from a real git server, with the operator's credentials. ADR 88."""

import asyncio
import os
import shutil

import asyncssh
import pytest
import pytest_asyncio
from turnwright.types.v1 import settings_pb2

from contract.executor.repositories import DONE, git, repository, worked
from git_server import CREDENTIALS, GitServer, SshGitServer, believe
from needs import needs
from services import running, token_for
from turnwright_client import Client
from turnwright_core.errors import DeniedError, PreconditionError

pytestmark = pytest.mark.asyncio


@pytest.fixture
def server(tmp_path):
    shop = tmp_path / "served" / "team" / "shop.git"
    shop.mkdir(parents=True)
    repository(shop)
    git(shop, "branch", "old")
    (shop / "b.txt").write_text("newer\n")
    git(shop, "add", "-A")
    git(shop, "commit", "-qm", "Go on")
    served = GitServer(tmp_path / "served")
    yield served
    served.close()


@pytest_asyncio.fixture
async def services(tmp_path, server, monkeypatch):
    """The services, whose executor may clone from the server, from one that is not there, and a folder."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    allowed = f"{server.url}/team,http://127.0.0.1:1/x,file://{tmp_path}/served/team"
    (tmp_path / "home").mkdir()
    async with running(tmp_path, git_urls=allowed, git_mb_max=1, sh_sandbox="auto") as made:
        yield made


async def cloned(services, url, ref=""):
    return await services.client.init_project("", git_url=url, git_ref=ref)


async def refused(services, url, ref="", kind=PreconditionError) -> str:
    with pytest.raises(kind) as caught:
        await cloned(services, url, ref)
    assert "swordfish" not in caught.value.message
    assert CREDENTIALS not in caught.value.message
    return caught.value.message


async def test_a_repository_is_a_project_once_with_credentials_that_no_command_sees(services, server, tmp_path, capfd):
    believe(tmp_path)
    url = f"{server.url}/team/shop.git"
    both = await asyncio.gather(*(cloned(services, url) for _ in range(3)))
    project = both[0]
    assert both == [project] * 3
    asked = sum(path.startswith("/team/shop.git/info/refs") for path, _ in server.seen)
    assert asked == 2, "one looks for the branch, and one fetches"
    assert project.name == "shop"
    count = len(server.seen)
    assert await cloned(services, url + "/") == project
    assert len(server.seen) == count
    root = project.root
    assert git(root, "log", "--format=%s").split("\n") == ["Go on", "Begin"]
    assert git(root, "status", "--porcelain") == ""
    old = await cloned(services, url, "old")
    assert old.root != root
    assert git(old.root, "log", "--format=%s") == "Begin"
    services.project = project.name
    looks = f"<sh>cat {tmp_path}/home/git/config; grep -r {CREDENTIALS} . ; cat .git/config; env</sh>"
    run = await worked(services, "r", settings_pb2.PLACE_WORKTREE, looks + '<set path="a.txt">new\n</set>' + DONE)
    shown = "".join([one.body async for one in services.client.list_entries(project.name, "r", "sh://**")])
    assert run.status == 200, (run.loop.reason, run.summary)
    assert git(root, "show", f"{run.place.branch}:a.txt") == "new"
    assert CREDENTIALS not in shown
    shared = await worked(services, "s", None, looks + DONE)
    assert shared.run
    shown = "".join([one.body async for one in services.client.list_entries(project.name, "s", "sh://**")])
    assert url in shown
    assert CREDENTIALS not in shown
    assert CREDENTIALS not in "".join(capfd.readouterr())


async def test_each_problem_says_what_to_do(services, server, tmp_path):
    url = f"{server.url}/team/shop.git"
    assert "git/config" in await refused(services, url)
    believe(tmp_path, "[http]\n\textraHeader = Authorization: Basic bm9ib2R5\n")
    assert "does not take the credentials" in await refused(services, url)
    believe(tmp_path)
    assert "check the URL" in await refused(services, f"{server.url}/team/none.git")
    assert "no branch or tag none" in await refused(services, url, "none")
    assert "cannot be reached" in await refused(services, "http://127.0.0.1:1/x/y.git")
    for elsewhere in (f"{server.url}/other/shop.git", f"{server.url}/teams/shop.git", "https://git.example.com/a.git"):
        assert "TURNWRIGHT_GIT_URLS" in await refused(services, elsewhere)
    large = tmp_path / "served" / "team" / "large"
    large.mkdir()
    repository(large)
    (large / "zeros").write_bytes(bytes(2_000_000))
    git(large, "add", "-A")
    git(large, "commit", "-qm", "Zeros")
    assert "TURNWRIGHT_GIT_MB_MAX" in await refused(services, f"{server.url}/team/large")
    (large / "zeros").write_bytes(os.urandom(2_000_000))
    git(large, "commit", "-qam", "Anything")
    assert "TURNWRIGHT_GIT_MB_MAX" in await refused(services, f"{server.url}/team/large")
    bomb = tmp_path / "served" / "team" / "bomb"
    bomb.mkdir()
    repository(bomb)
    tree = git(bomb, "mktree")
    for _ in range(40):
        tree = git(bomb, "mktree", said=f"040000 tree {tree}\ta\n040000 tree {tree}\tb\n")
    git(bomb, "reset", "-q", "--soft", git(bomb, "commit-tree", tree, "-m", "Folders without a file"))
    assert "with folders more than 1000000" in await refused(services, f"{server.url}/team/bomb")
    empty = tmp_path / "served" / "team" / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    assert "has no commit" in await refused(services, f"{server.url}/team/empty")
    assert sorted(one.name for one in (tmp_path / "home" / "projects").iterdir()) == []


async def test_a_repository_does_not_say_which_project_it_is(services, server, tmp_path):
    believe(tmp_path)
    victim = await services.client.init_project(str(services.files))
    shop = tmp_path / "served" / "team" / "shop.git"
    (shop / ".turnwright").mkdir()
    (shop / ".turnwright" / "workspace").write_text(f"{victim.workspace_id}\n")
    git(shop, "add", "-Af")
    git(shop, "commit", "-qm", "Take it over")
    project = await cloned(services, f"{server.url}/team/shop.git")
    assert project.name != victim.name
    assert await services.client.init_project(str(services.files)) == victim


async def test_credentials_are_not_sent_on_to_another_host(services, server, tmp_path):
    believe(tmp_path)
    other = GitServer(tmp_path / "served")
    try:
        server.redirect = other.url
        assert "its new URL" in await refused(services, f"{server.url}/team/shop.git")
        assert other.seen == []
    finally:
        other.close()


async def test_a_server_that_is_silent_costs_the_deadline(server, tmp_path):
    server.hold.clear()
    async with running(tmp_path, git_urls=server.url, git_deadline_s=0.5) as services:
        assert "has not answered within 0.5 s" in await refused(services, f"{server.url}/team/shop.git")
    assert list((tmp_path / "home" / "projects").iterdir()) == []


async def test_a_clone_whose_caller_goes_away_is_that_of_the_next_one(services, server, tmp_path):
    believe(tmp_path)
    server.hold.clear()
    url = f"{server.url}/team/shop.git"
    gone = asyncio.create_task(cloned(services, url))
    async with asyncio.timeout(30):
        while not server.seen:  # noqa: ASYNC110 - the server is a thread
            await asyncio.sleep(0.02)
    gone.cancel()
    await asyncio.wait((gone,))
    server.hold.set()
    project = await cloned(services, url)
    assert git(project.root, "log", "-1", "--format=%s") == "Go on"
    assert sum(path.startswith("/team/shop.git/info/refs") for path, _ in server.seen) == 2


async def test_a_clone_is_its_makers_and_nobody_with_a_token_for_some_projects_makes_one(services, server, tmp_path):
    believe(tmp_path)
    url = f"{server.url}/team/shop.git"
    for name, claims in (("alice", {"projects": ["shop"]}), ("alice", {}), ("bob", {})):
        async with Client.connect(services.addresses["executor"], token_for(name, **claims)) as client:
            if name == "bob" or claims:
                with pytest.raises(DeniedError):
                    await client.init_project("", git_url=url)
            else:
                assert (await client.init_project("", git_url=url)).name == "shop"


async def test_a_folder_is_cloned_where_it_is_allowed_and_no_link(services, tmp_path):
    team = tmp_path / "served" / "team"
    (team / "link").symlink_to(team / "shop.git")
    project = await cloned(services, f"file://{team}/shop.git")
    assert git(project.root, "log", "-1", "--format=%s") == "Go on"
    await refused(services, f"file://{team}/link")


SSH = 'ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes -o UserKnownHostsFile=\\"$HOME/known_hosts\\" -i \\"$HOME/key\\"'


@needs("ssh", "apt-get install openssh-client", there=shutil.which("ssh"))
async def test_a_repository_by_ssh_takes_the_operators_key_and_a_server_that_is_known(tmp_path, server, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    other = asyncssh.generate_private_key("ssh-ed25519")
    async with (
        SshGitServer(tmp_path / "served") as by_ssh,
        running(tmp_path, git_urls=f"{by_ssh.url}/team", sh_sandbox="auto") as services,
    ):
        url = f"{by_ssh.url}/team/shop.git"
        believe(tmp_path, f"[core]\n\tsshCommand = {SSH}\n")
        folder = tmp_path / "home" / "git"
        key, known = folder / "key", folder / "known_hosts"
        assert "does not know the server's key" in await refused(services, url)
        known.write_text(by_ssh.known_as(other))
        assert "another key" in await refused(services, url)
        known.write_text(by_ssh.known_as())
        assert "does not take the credentials" in await refused(services, url)
        key.write_bytes(by_ssh.key.export_private_key())
        key.chmod(0o644)
        assert "chmod 600" in await refused(services, url)
        key.chmod(0o600)
        assert "check the URL" in await refused(services, f"{by_ssh.url}/team/none.git")
        project = await cloned(services, url)
        assert git(project.root, "log", "-1", "--format=%s") == "Go on"
        services.project = project.name
        await worked(services, "r", None, f"<sh>cat {key}; ls {folder}; env</sh>" + DONE)
        shown = "".join([one.body async for one in services.client.list_entries(project.name, "r", "sh://**")])
        assert "PATH=" in shown
        assert not {"PRIVATE", "known_hosts"} & set(shown.replace("/", " ").split())


async def test_what_a_clone_that_was_killed_left_is_removed(services, tmp_path):
    left = tmp_path / "home" / "projects" / "0123~4567"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    await services.restart("executor")
    async with asyncio.timeout(30):
        while left.exists():  # noqa: ASYNC110 - it removes in the background
            await asyncio.sleep(0.05)
    assert left.parent.exists()
