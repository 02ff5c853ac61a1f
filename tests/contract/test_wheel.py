"""What people install: the built wheel describes itself, and works with nothing of the checkout beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from turnwright_core import __version__
from wheels import CLIENT, ROOT, WAIT_S, about, brought, built, empty_environment

SERVICES = ROOT / "services"
BUILT_FROM = ("clients/", *(f"turnwright_ui/{name}" for name in ("src/", "package.json", "tsconfig.json", "build.mjs")))
"""What the page is built from, and clients in other languages."""

pytest.importorskip("hatchling", reason="install the extra `test`: the wheel is built by hatchling")


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """The wheel, built from the checkout."""
    return built("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def client_package(tmp_path_factory) -> Path:
    """That of the client."""
    return built("wheel", ROOT / CLIENT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel(package, client_package, tmp_path_factory) -> Path:
    """Both, unpacked as an installer does."""
    site = tmp_path_factory.mktemp("site")
    for each in (package, client_package):
        with zipfile.ZipFile(each) as archive:
            archive.extractall(site)
    return site


def test_whoever_builds_them_from_the_sdist_gets_the_same_bytes(package, client_package, tmp_path) -> None:
    """Elsewhere, later, by somebody whose files have other rights: what is published can be checked by anybody."""
    sources = [built("sdist", ROOT, tmp_path / each) for each in ("once", "again")]
    assert sources[0].read_bytes() == sources[1].read_bytes()
    with tarfile.open(sources[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / sources[0].name.removesuffix(".tar.gz")
    for path in source.rglob("*.py"):
        path.chmod(0o600)
        os.utime(path, (1, 1))
    for folder, first in ((source, package), (source / CLIENT, client_package)):
        again = built("wheel", folder, tmp_path)
        assert (again.name, again.read_bytes()) == (first.name, first.read_bytes())


def test_one_place_says_which_release_it_is(package, client_package) -> None:
    assert package.name == f"turnwright-{__version__}-py3-none-any.whl"
    assert client_package.name == f"turnwright_client-{__version__}-py3-none-any.whl"
    [needed] = [one for one in about(package).get_all("Requires-Dist") if one.startswith("turnwright-client")]
    assert needed.partition(";")[0].strip() == f"turnwright-client=={__version__}"
    images = (ROOT / "deploy" / "kubernetes" / "base" / "kustomization.yaml").read_text()
    assert f"newTag: {__version__}\n" in images
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_its_description_is_the_readme(package, client_package) -> None:
    for each, folder in ((package, ROOT), (client_package, ROOT / CLIENT)):
        said = about(each)
        assert said["Description-Content-Type"] == "text/markdown"
        assert said.get_payload(decode=True).decode().strip() == (folder / "README.md").read_text().strip()
        assert said["Summary"]


def test_no_file_stands_in_both(package, client_package) -> None:
    ours, theirs = ({*zipfile.ZipFile(each).namelist()} for each in (package, client_package))
    assert ours & theirs == set()
    tops = [{name.partition("/")[0] for name in names if ".dist-info/" not in name} for names in (ours, theirs)]
    assert tops[1] == {"turnwright", "turnwright_values", "turnwright_core", "turnwright_client"}
    assert tops[0] & tops[1] == set()


def test_the_client_brings_five_packages_at_most_and_imports_nothing_else(client_package, tmp_path) -> None:
    """But for what serves tools, which has an extra of its own."""
    assert len(brought(client_package)) <= 5
    python = empty_environment(tmp_path / "empty", client_package) / "python"
    walk = (
        "import pkgutil, sys, importlib, turnwright_client, turnwright_core.rpc as rpc, turnwright_core.wire as wire\n"
        "for package in (turnwright_client, rpc, wire):\n"
        "    for one in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if one.name != 'turnwright_client.tool_server': importlib.import_module(one.name)\n"
        "for name in turnwright_client.__all__: getattr(turnwright_client, name)\n"
        "print(turnwright_client.__file__, any(name.startswith('turnwright_kit') for name in sys.modules))"
    )
    ran = subprocess.run([python, "-I", "-c", walk], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    file, has_kit = ran.stdout.split()
    assert (Path(file).is_relative_to(tmp_path), has_kit) == (True, "False")
    assert (Path(file).parent / "py.typed").is_file()


def test_an_editable_install_has_no_copy_of_what_it_names(tmp_path) -> None:
    """Python would import that one."""
    names = zipfile.ZipFile(built("editable", ROOT / CLIENT, tmp_path)).namelist()
    assert [name for name in names if ".dist-info/" not in name] == ["_turnwright_client.pth"]


def test_it_holds_every_file_of_the_packages(wheel) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=SERVICES, check=True, capture_output=True, text=True).stdout
    kept = [name for name in tracked.splitlines() if not name.startswith(BUILT_FROM)]
    assert [name for name in kept if not (wheel / name).is_file()] == []
    assert not list((wheel / "turnwright_ui").rglob("*.ts*"))


def test_the_demo_runs_from_it(wheel, tmp_path) -> None:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TURNWRIGHT_", "OPENAI_"))}
    found = "import turnwright_cli, turnwright_cli.__main__ as m; print(turnwright_cli.__file__, flush=True); m.run()"
    ended = subprocess.run(
        [sys.executable, "-c", found, "demo"],
        env={**inherited, "PYTHONPATH": str(wheel), "TURNWRIGHT_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[0] == str(wheel / "turnwright_cli" / "__init__.py")
    assert "The demo is complete" in ended.stdout
