"""Runs that work in a work tree or a clone of the repository of their project. ADR 85."""

import asyncio

import pytest
from turnwright.types.v1 import settings_pb2

from contract.executor.repositories import DONE, git, repository, skip_without, worked
from services import running
from turnwright_kit.settings import SettingsError

pytestmark = pytest.mark.asyncio

WORKTREE, CLONE = settings_pb2.PLACE_WORKTREE, settings_pb2.PLACE_CLONE


@pytest.fixture
def changes():
    return '<set path="a.txt">new\n</set><set path="b.txt">more\n</set><sh>echo log > x.log; cat a.txt</sh>' + DONE


@pytest.mark.parametrize("place", [WORKTREE, CLONE])
async def test_what_a_run_changes_is_on_its_branch_and_not_in_the_project(services, changes, place):
    repository(services.files)
    run = await worked(services, "r", place, changes)
    assert run.status == 200, run.summary
    assert (services.files / "a.txt").read_text() == "old\n"
    assert not (services.files / "b.txt").exists()
    branch = run.place.branch
    assert branch.startswith("turnwright/r-")
    assert git(services.files, "show", f"{branch}:a.txt") == "new"
    assert git(services.files, "diff", "--name-only", f"main...{branch}").split() == ["a.txt", "b.txt"]
    assert git(services.files, "status", "--porcelain") == ""
    assert (await services.entry("a.txt", "r")).body == "new\n"


async def test_a_run_goes_on_where_it_was_and_a_fork_where_its_parent_is(services, changes):
    repository(services.files)
    await worked(services, "r", WORKTREE, changes)
    looks = "<sh>cat a.txt b.txt x.log; git status --short; git log -1 --format=%s</sh>"
    again = await worked(services, "r", None, looks + DONE)
    assert again.status == 200
    shown = [one.body async for one in services.client.list_entries(services.project, "r", "sh://**") if one.turn == 2]
    assert "".join(shown) == f"new\nmore\nlog\nLoop 1 of {again.place.name}\n"
    fork = await services.client.fork_run(services.project, "r", new_run="f")
    assert fork.place.parent == again.place.name
    forked = await worked(services, "f", None, '<set path="c.txt">c\n</set>' + DONE)
    listed = git(services.files, "ls-tree", "--name-only", forked.place.branch).split()
    assert listed == [".gitignore", "a.txt", "b.txt", "c.txt"]
    assert "c.txt" not in git(services.files, "ls-tree", "--name-only", again.place.branch)


async def test_commits_of_a_clone_are_those_of_its_branch(services):
    repository(services.files)
    commits = "<sh>git config user.name M; git config user.email m@localhost; echo 1 > b.txt; git add b.txt; git commit -qm Mine; echo 2 > b.txt</sh>"
    run = await worked(services, "r", CLONE, commits + DONE)
    told = git(services.files, "log", "--format=%s", f"main..{run.place.branch}").splitlines()
    assert told == [f"Loop 1 of {run.place.name}", "Mine"]
    assert git(services.files, "show", f"{run.place.branch}:b.txt") == "2"


async def test_without_a_repository_there_is_no_place_and_the_loop_says_so(services):
    run = await worked(services, "r", WORKTREE, DONE)
    assert run.status == 500
    assert "not the top of a git repository with a commit" in run.loop.reason


async def test_what_a_repository_wants_to_be_run_sees_nothing_but_the_place(services, tmp_path):
    """Hooks are not run, and a filter of the project's repository is none of the place's."""
    repository(services.files)
    ran = tmp_path / "ran"
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        hook = services.files / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
        hook.chmod(0o755)
    git(services.files, "config", "filter.evil.smudge", f"sh -c 'touch {ran}; cat'")
    git(services.files, "config", "core.alternateRefsCommand", f"touch {ran}")
    (services.files / ".git" / "info" / "attributes").write_text("*.txt filter=evil\n")
    ran.unlink(missing_ok=True)
    run = await worked(services, "r", WORKTREE, '<set path="a.txt">new\n</set>' + DONE)
    assert run.status == 200
    assert git(services.files, "show", f"{run.place.branch}:a.txt") == "new"
    assert not ran.exists()


@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.parametrize("place", [WORKTREE, CLONE])
async def test_many_runs_at_once_work_apart_while_people_commit(services, place, count):
    repository(services.files)
    for number in range(200):
        (services.files / f"{number}.txt").write_text(f"{number}\n" * 500)
    git(services.files, "add", "-A")
    git(services.files, "commit", "-qm", "More")
    services.script('<sh>test -e own.txt || echo "$PWD" > own.txt</sh>' + DONE)
    names = [f"r{number}" for number in range(count)]
    for name in names:
        await services.client.create_run(services.project, name, settings_pb2.RunSettings(model="m", place=place))
    queued = [await services.act(run=name) for name in names]
    ended = asyncio.gather(*(services.until(one) for one in queued))
    for number in range(count):
        (services.files / "a.txt").write_text(f"{number}\n")
        await asyncio.to_thread(git, services.files, "commit", "-qam", f"Commit {number}")
    await ended
    runs = [(await services.client.get_run(services.project, name)).run for name in names]
    assert [run.loop.reason for run in runs if run.status != 200] == []
    roots = {git(services.files, "show", f"{run.place.branch}:own.txt") for run in runs}
    assert len(roots) == len(names)
    assert {run.place.branch for run in runs} <= set(git(services.files, "branch", "--format=%(refname:short)").split())
    git(services.files, "fsck", "--strict")


async def test_the_place_of_a_removed_run_is_removed_and_its_branch_stays(services):
    repository(services.files)
    places = services.root / "home" / "places"
    kept = await worked(services, "kept", WORKTREE, '<set path="a.txt">new\n</set>' + DONE)
    gone = await worked(services, "gone", WORKTREE, '<set path="a.txt">other\n</set>' + DONE)
    await services.client.delete_run(services.project, "gone")
    await services.restart("executor")
    async with asyncio.timeout(30):
        while [folder.name for folder in places.glob("*/*")] != [kept.place.name]:  # noqa: ASYNC110 - it removes in the background
            await asyncio.sleep(0.05)
    assert git(services.files, "show", f"{gone.place.branch}:a.txt") == "other"


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_a_link_in_the_place_of_objects_shows_commands_nothing(tmp_path, monkeypatch, backend):
    """A command of a run that shares the project can put one there: to the home, or to another team's repository."""
    skip_without(backend)
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, sh_sandbox=backend) as services:
        repository(services.files)
        other = tmp_path / "other"
        other.mkdir()
        (other / "secret").write_text("swordfish")
        objects = services.files / ".git" / "objects"
        await worked(services, "r", WORKTREE, "<sh>git log --format=%s</sh>" + DONE)
        objects.rename(objects.with_name("o2"))
        objects.symlink_to(other)
        looks = f"<sh>cat {objects}/secret {other}/secret; echo looked</sh>"
        await worked(services, "r", None, looks + DONE)
        found = services.client.list_entries(services.project, "r", "sh://**")
        shown = [one.body async for one in found]
    assert "".join(shown).startswith("Begin\n")
    assert "looked" in "".join(shown)
    assert "swordfish" not in "".join(shown)


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_what_a_project_wants_to_be_run_sees_no_place_when_one_is_saved(tmp_path, monkeypatch, backend):
    """The configuration of a project is what commands of any of its runs have written."""
    skip_without(backend)
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, sh_sandbox=backend) as services:
        repository(services.files)
        run = await worked(services, "r", WORKTREE, "<sh>echo swordfish > secret.log</sh>" + DONE)
        [place] = (tmp_path / "home" / "places").glob("*/r-*")
        told, own = services.files / ".git" / "told", services.files / ".git" / "own"
        own.write_text(
            f"find {place}/out {place} >> {told}; touch {place}/tree/planted; cat {place}/tree/secret.log >> {told}\n"
        )
        git(services.files, "config", "protocol.ext.allow", "always")
        git(services.files, "config", f"url.ext::sh {own} %S .insteadOf", str(place))
        again = await worked(services, "r", None, '<set path="a.txt">new\n</set>' + DONE)
        assert again.status == 200
        assert "bundle" in told.read_text()
        assert "swordfish" not in told.read_text()
        assert "tree" not in told.read_text()
        assert not (place / "tree" / "planted").exists()
        git(services.files, "config", "--remove-section", f"url.ext::sh {own} %S ")
        await worked(services, "r", None, DONE)
        assert git(services.files, "show", f"{run.place.branch}:a.txt") == "new"


async def test_a_link_in_the_place_of_a_repository_is_not_written(services):
    repository(services.files)
    other = services.root / "other"
    other.mkdir()
    repository(other)
    run = await worked(services, "r", WORKTREE, DONE)
    own = services.files / ".git"
    own.rename(services.files / "git")
    own.symlink_to(other / ".git")
    assert (await worked(services, "r", None, '<set path="a.txt">new\n</set>' + DONE)).status in (200, 500)
    assert git(other, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert run.place.name


async def test_locks_of_a_git_that_was_killed_keep_nothing_away(services):
    repository(services.files)
    run = await worked(services, "r", WORKTREE, DONE)
    own = next((services.root / "home" / "places").glob("*/r-*")) / "repo"
    reference = f"refs/heads/{run.place.branch}.lock"
    for lock in (own / "index.lock", own / "HEAD.lock", own / reference, services.files / ".git" / reference):
        lock.touch()
    await worked(services, "r", None, '<set path="a.txt">new\n</set>' + DONE)
    assert git(services.files, "show", f"{run.place.branch}:a.txt") == "new"


async def test_files_of_a_repository_within_a_place_are_on_the_branch(services):
    """Git adds one by the name of its commit, which is nowhere else, and none without a commit."""
    repository(services.files)
    makes = (
        "<sh>set -e; git init -q new; echo 1 > new/b; g='git -c user.name=M -c user.email=m@localhost'; "
        "git init -q sub; git init -q sub/deep; cd sub/deep; echo 2 > c; git add c; $g commit -qm Deep; "
        "cd ..; echo x > x.log; echo 3 > d; git add d; $g commit -qm Sub</sh>"
    )
    run = await worked(services, "r", WORKTREE, '<set path="a.txt">new\n</set>' + makes + DONE)
    shown = [one.body async for one in services.client.list_entries(services.project, "r", "sh://**")]
    assert run.status == 200, shown
    listed = ["a.txt", "new/b", "sub/d", "sub/deep/c"]
    assert git(services.files, "diff", "--name-only", f"main...{run.place.branch}").split() == listed
    run = await worked(services, "r", None, "<sh>echo 4 > sub/deep/c; rm new/b; echo 5 > new/e</sh>" + DONE)
    assert git(services.files, "show", f"{run.place.branch}:sub/deep/c") == "4"
    listed = ["a.txt", "new/e", "sub/d", "sub/deep/c"]
    assert git(services.files, "diff", "--name-only", f"main...{run.place.branch}").split() == listed
    await services.client.fork_run(services.project, "r", new_run="f")
    forked = await worked(services, "f", None, '<set path="c.txt">c\n</set>' + DONE)
    assert forked.status == 200, forked.loop.reason
    assert git(services.files, "show", f"{forked.place.branch}:c.txt") == "c"
    assert git(services.files, "show", f"{forked.place.branch}:sub/deep/c") == "4"


async def test_a_submodule_stays_one(services):
    repository(services.files)
    lent = services.root / "lent"
    lent.mkdir()
    repository(lent)
    commit = git(lent, "rev-parse", "HEAD")
    git(services.files, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(lent), "lent")
    git(services.files, "commit", "-qm", "Lend")
    run = await worked(services, "r", WORKTREE, "<sh>git init -q lent; echo 1 > lent/b</sh>" + DONE)
    assert git(services.files, "rev-parse", f"{run.place.branch}:lent") == commit


async def test_places_of_another_deployment_are_left_alone(services, tmp_path, monkeypatch):
    """Its runs are unknown to our store, which would take each of their places for nobody's."""
    repository(services.files)
    run = await worked(services, "r", WORKTREE, '<set path="a.txt">new\n</set>' + DONE)
    places = services.root / "home" / "places"
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_PLACES", str(places))
    (tmp_path / "other").mkdir()
    with pytest.raises(SettingsError, match="another deployment's runs"):
        async with running(tmp_path / "other"):
            pass
    monkeypatch.delenv("TURNWRIGHT_PLACES")
    await services.restart("executor")
    again = await worked(services, "r", None, "<sh>cat a.txt</sh>" + DONE)
    assert again.place.name == run.place.name
    (places / "deployment").write_text("another")
    await services.restart("executor")
    other = await worked(services, "s", WORKTREE, DONE)
    assert other.status == 500
    assert "another deployment's runs" in other.loop.reason
    assert [folder.name for folder in places.glob("*/*")] == [run.place.name]
