"""Git repositories as projects, and runs that work there."""

import os
import shutil
import subprocess

import pytest
from turnwright.types.v1 import settings_pb2

from turnwright_kit.sandbox import landlock

DONE = '<update status="200">Done.</update>'
WITHOUT_OURS = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def git(folder, *words, said="") -> str:
    """What git answers there to what is said, as somebody who works there."""
    named = ("-c", "user.name=A", "-c", "user.email=a@localhost", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *named, *words], input=said, cwd=folder, env=WITHOUT_OURS, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def repository(folder) -> None:
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("old\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Begin")


async def worked(services, run, place, *replies):
    """The run after a loop with these replies."""
    services.script(*replies)
    if place:
        await services.client.create_run(services.project, run, settings_pb2.RunSettings(model="m", place=place))
    await services.until(await services.act(run=run))
    return (await services.client.get_run(services.project, run)).run


def skip_without(backend) -> None:
    if backend == "landlock" and landlock.problem():
        pytest.skip(f"no Landlock: {landlock.problem()}")
    if backend == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("no bubblewrap")
