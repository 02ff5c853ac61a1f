"""The commands of docs/clients/typescript.md work as they stand, in a folder with nothing but the stubs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from polyglot.pages import FILE, REPO

PAGE = (REPO / "docs" / "clients" / "typescript.md").read_text()
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
INSTALL, *LATER = COMMANDS
INSTALL_S = 600


def test_the_page_installs_what_its_programs_are_tested_with():
    tested = json.loads((REPO / "package.json").read_text())["devDependencies"]
    wanted = dict(re.findall(r"(@?[\w/.-]+)@([\d.]+)", INSTALL))
    assert wanted.keys() == {name for name in tested if name.startswith("@connectrpc/")} | {
        "@bufbuild/protobuf",
        "esbuild",
    }
    assert {
        name: tested[name] for name, version in wanted.items() if not f"{tested[name]}.".startswith(f"{version}.")
    } == {}
    # Packages that need each other in the same version are asked for in the same one.
    assert len({version for name, version in wanted.items() if name.startswith("@connectrpc/")}) == 1


@pytest.mark.polyglot
@pytest.mark.timeout(2 * INSTALL_S)
@pytest.mark.skipif(not shutil.which("npm"), reason="needs npm: it installs what the page says")
def test_the_commands_of_the_page_make_its_programs_in_an_empty_folder(tmp_path):
    shutil.copytree(REPO / "gen" / "ts", tmp_path / "gen" / "ts")
    for name, text in FILE.findall(PAGE):
        (tmp_path / name).write_text(text)
    for command in (INSTALL, *(one for one in LATER if one.startswith("npx esbuild"))):
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=INSTALL_S
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert (tmp_path / "node.cjs").stat().st_size > 100_000 < (tmp_path / "web.js").stat().st_size
