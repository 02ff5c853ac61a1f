"""Names of files whose letters are composed (NFC) on one side and decomposed (NFD) on the other."""

from unicodedata import normalize

import pytest
from turnwright_values.types import FileConstraint, FileConstraintKind, State, Visibility

from turnwright_core.constraints import Constraints
from turnwright_executor.files.scan import DiskScanner
from turnwright_executor.files.workspace import DiskWorkspace
from turnwright_executor.tools.ports import OutsideProjectError

NAME = "Übung/café 한글.txt"
BOTH_WAYS = pytest.mark.parametrize(("written", "there"), [("NFC", "NFD"), ("NFD", "NFC")])
MIXED = f"{normalize('NFD', 'Übung')}/{normalize('NFC', 'café 한글.txt')}"


def paths(root) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@BOTH_WAYS
@pytest.mark.asyncio(loop_scope="module")
async def test_a_command_finds_the_file_in_the_other_form(bench, written, there):
    named, real = normalize(written, NAME), normalize(there, NAME)
    await bench.file(real, "one\n")
    assert (await bench.prepare(f'<get path="{named}"/>')).body.startswith(real)
    assert (await bench.view())[real] is Visibility.VISIBLE
    edit = f'<set path="{named}"><<SEARCH\none\nSEARCH\n<<REPLACE\ntwo\nREPLACE</set>'
    assert (await bench.run(edit)).body == f"edit {real} (+1 -1)"
    assert bench.text(real) == "two\n"
    assert (await bench.run(f'<cp path="{named}" to="copy.txt"/>')).state is State.RESOLVED
    assert (await bench.run(f'<mv path="copy.txt" to="{named}"/>')).state is State.RESOLVED
    assert paths(bench.root) == [real]
    assert (await bench.run(f'<rm path="{named}"/>')).state is State.RESOLVED
    assert paths(bench.root) == []


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("real", [normalize("NFC", NAME), normalize("NFD", NAME), MIXED], ids=["NFC", "NFD", "mixed"])
@pytest.mark.parametrize("pattern", ["Übung/*", "Üb*/c*é*", "**/café*", "?bung/caf? ??.txt"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_glob_finds_it_in_any_form(bench, form, real, pattern):
    await bench.file(real, "one\n")
    await bench.file("Ubung/cafe.txt", "other\n")
    assert (await bench.prepare(f'<get path="{normalize(form, pattern)}"/>')).body.splitlines() == [
        f"{real}: 1 line, 2 tokens"
    ]
    await bench.run(f'<mv path="{normalize(form, "Übung/*")}" to="out/"/>')
    assert paths(bench.root) == ["Ubung/cafe.txt", f"out/{real.rpartition('/')[2]}"]


@BOTH_WAYS
@pytest.mark.asyncio(loop_scope="module")
async def test_a_new_file_keeps_its_name_as_written_in_the_folder_that_is_there(bench, written, there):
    folder = normalize(there, "Übung")
    await bench.file(f"{folder}/a.txt", "a\n")
    name = normalize(written, "naïve.txt")
    await bench.run(f'<set path="{normalize(written, "Übung")}/{name}">x\n</set>')
    assert paths(bench.root) == sorted([f"{folder}/a.txt", f"{folder}/{name}"])


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.asyncio
async def test_an_exact_name_is_taken_first_and_of_several_others_none(tmp_path, is_local):
    # Two accents: composed, in the order of NFD, and in the other order are three spellings of one name.
    composed, decomposed, other = "\u1ec7", "e\u0323\u0302", "e\u0302\u0323"
    workspace = DiskWorkspace(tmp_path, 1000, is_local=lambda _: is_local)
    (tmp_path / decomposed).write_text("decomposed")
    found = await workspace.read(composed)
    assert found
    assert found.text == "decomposed"
    (tmp_path / other).write_text("other")
    assert await workspace.find(composed) == (composed, None)
    (tmp_path / composed).write_text("composed")
    for name, text in ((composed, "composed"), (decomposed, "decomposed"), (other, "other")):
        path, found = await workspace.find(name)
        assert found
        assert (path, found.text) == (name, text)


@BOTH_WAYS
@pytest.mark.asyncio
async def test_what_a_project_forbids_is_forbidden_in_either_form(tmp_path, written, there):
    outside = tmp_path / "outside.txt"
    outside.write_text("canary")
    root = tmp_path / "project"
    root.mkdir()
    secret, link, circle = (normalize(there, name) for name in ("gehéim.txt", "é.txt", "ü"))
    (root / secret).write_text("secret")
    (root / normalize(there, "fést.txt")).write_text("fixed")
    (root / link).symlink_to(outside)
    (root / circle).symlink_to(normalize(written, "ü"))
    said = [
        FileConstraint(normalize(written, "gehéim.txt"), FileConstraintKind.IGNORE),
        FileConstraint(normalize(written, "f*ést.*"), FileConstraintKind.READONLY),
    ]
    workspace = DiskWorkspace(root, 1000, Constraints(said))
    for path in ("gehéim.txt", "é.txt"):
        with pytest.raises(OutsideProjectError):
            await workspace.read(normalize(written, path))
    for form in (written, there):
        assert await workspace.read(normalize(form, "fést.txt"))
        with pytest.raises(OutsideProjectError, match="read-only"):
            await workspace.normalise(normalize(form, "fést.txt"), writing=True)
    assert (await workspace.find(normalize(written, "ü")))[1] is None


@BOTH_WAYS
@pytest.mark.parametrize("pattern", ["Übung/café 한글.txt", "Übung/*", "/.+Übung.caf.+/"])
@pytest.mark.asyncio
async def test_what_a_project_adds_is_taken_in_in_either_form(tmp_path, written, there, pattern):
    real = normalize(there, f".hidden/{NAME}")
    (tmp_path / real).parent.mkdir(parents=True)
    (tmp_path / real).write_text("x")
    if not pattern.startswith("/"):
        pattern = f".hidden/{pattern}"
    constraints = Constraints([FileConstraint(normalize(written, pattern), FileConstraintKind.ADD)])
    scan = await DiskScanner(tmp_path, file_bytes_max=1000, files_max=9, constraints=constraints).scan()
    assert [(file.path, file.is_added) for file in scan.changed] == [(real, True)]
