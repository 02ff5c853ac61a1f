"""skill: from the project, from the home, from the web; as file, folder and archive. Rows RU070, RU119, RU123, RU239."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile

import pytest
import pytest_asyncio
from turnwright.types.v1.project_pb2 import FILE_CONSTRAINT_KIND_IGNORE as IGNORE

from pages_server import PagesServer, html, typed
from services import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
VISIBLE, SUMMARIZED, ARCHIVED = 1, 2, 3


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory):
    """The services, with a web on loopback, and small limits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
        async with PagesServer() as web:
            limits = {"web_networks": "127.0.0.1", "skill_files_max": 20, "skill_bytes_max": 50_000}
            async with running(tmp_path_factory.mktemp("skills"), **limits) as services:
                services.web = web
                yield services


@pytest_asyncio.fixture(loop_scope="module")
async def services(stack, request):
    """A run of the test's own that has done nothing; `put` writes a file of the project."""
    stack.web.pages.clear()
    stack.run = f"r{abs(hash(request.node.name))}"
    stack.script(DONE)
    await stack.until(await stack.act(run=stack.run))
    return stack


def put(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def zipped(files, links=(), method=zipfile.ZIP_DEFLATED):
    """An archive; what is named among the links is one."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            info.external_attr = ((stat.S_IFLNK if name in links else stat.S_IFREG) | 0o644) << 16
            archive.writestr(info, data)
    return written.getvalue()


async def load(services, path):
    return await services.client.call_tool(services.project, services.run, "skill", {"path": str(path)})


async def loaded(services, name):
    """Body and visibility by path."""
    entries = services.client.list_entries(services.project, services.run, f"skill://{name}*")
    found = {entry.path: (entry.body, entry.visibility) async for entry in entries}
    return {path: told for path, told in found.items() if path.removeprefix(f"skill://{name}")[:1] in ("", "/")}


async def test_a_folder_is_its_index_summarized_and_its_parts_archived(services) -> None:
    # RU070, RU239
    put(services.files / "skills/release", index_md="# How to release\n", steps__index_md="1.\n", steps__tag_md="2.\n")
    (services.files / "skills/release/run.sh").write_text("exit\n")
    entry = await load(services, "skills/release")
    assert (entry.status, entry.body) == (
        200,
        'skill://release: 1 line, 9 tokens\n3 parts, archived; <get path="skill://release/**" preview/> lists them.',
    )
    assert await loaded(services, "release") == {
        "skill://release": ("# How to release\n", SUMMARIZED),
        "skill://release/run.sh": ("exit\n", ARCHIVED),
        "skill://release/steps": ("1.\n", ARCHIVED),
        "skill://release/steps/tag": ("2.\n", ARCHIVED),
    }
    root = await services.entry("skill://release", services.run)
    attributes = {"summary": "How to release", "source": "skills/release"}
    assert (root.scope.split(":")[0], json.loads(root.attributes_json)) == ("project", attributes)


async def test_a_model_loads_a_skill_and_reads_it(services) -> None:
    # RU119, RU123, RU239
    put(services.files, guide_md="# Guide\nFirst this.\n")
    services.script(f'<skill path="guide.md"/>{GO_ON}', f'<get path="skill://guide"/>{GO_ON}', DONE)
    await services.until(await services.act(run=services.run, no_web=True))
    packets = [(await services.entry(f"user://{turn}", services.run)).body for turn in (3, 4)]
    assert 'summary="Guide"' in packets[0]
    assert packets[1].count("First this.") >= 1
    assert (await loaded(services, "guide"))["skill://guide"][1] == VISIBLE


async def test_a_skill_of_the_home_is_loaded_by_its_name(services) -> None:
    # RU239
    shelf = services.root / "home/skills"
    put(shelf, pdf__SKILL_md="---\ndescription: Reads PDF\n---\n", notes_md="# Notes\n")
    (shelf / "packed.zip").write_bytes(zipped({"packed/index.md": "# Packed\n", "packed/a.md": "a"}))
    bodies = [(await load(services, name)).body.partition(":1 ")[0] for name in ("pdf", "notes", "packed")]
    assert [body.split(": ")[0] for body in bodies] == ["skill://pdf", "skill://notes", "skill://packed"]
    assert set(await loaded(services, "packed")) == {"skill://packed", "skill://packed/a"}


async def test_what_the_project_has_comes_before_the_home(services) -> None:
    # RU239
    put(services.root / "home/skills", both_md="home")
    put(services.files, both__index_md="project")
    await load(services, "both")
    assert await loaded(services, "both") == {"skill://both": ("project", SUMMARIZED)}


@pytest.mark.parametrize(("name", "media_type"), [("a.zip", "application/zip"), ("a", "application/octet-stream")])
async def test_an_archive_comes_from_the_web(services, name, media_type) -> None:
    # RU239
    services.web.pages[f"/{name}"] = typed(zipped({"a-main/index.md": "# A\n", "a-main/b/c.md": "c"}), media_type)
    await load(services, f"{services.web.url}/{name}")
    assert await loaded(services, "a") == {"skill://a": ("# A\n", SUMMARIZED), "skill://a/b/c": ("c", ARCHIVED)}


async def test_a_file_comes_from_the_web_and_a_web_page_is_none(services) -> None:
    # RU239
    services.web.pages |= {"/w.md": typed(b"# W\n", "text/plain"), "/p": html("<h1>P</h1>")}
    await load(services, f"{services.web.url}/w.md")
    page = await load(services, f"{services.web.url}/p")
    assert await loaded(services, "w") == {"skill://w": ("# W\n", SUMMARIZED)}
    assert (page.outcome, await loaded(services, "p")) == ("unsupported:415", {})


async def test_loading_again_overwrites_and_takes_away_what_is_gone(services) -> None:
    # RU239, RU205
    folder = services.files / "again"
    put(folder, index_md="old", gone_md="gone", kept_md="kept")
    services.script(
        f'<skill path="again"/><set path="skill://again" visibility="visible"/>'
        f'<set path="skill://again/own">mine</set>{GO_ON}',
        DONE,
    )
    await services.until(await services.act(run=services.run))
    put(folder, index_md="new")
    (folder / "gone.md").unlink()
    await load(services, "again")
    assert await loaded(services, "again") == {
        "skill://again": ("new", VISIBLE),
        "skill://again/kept": ("kept", ARCHIVED),
        "skill://again/own": ("mine", VISIBLE),
    }


async def test_what_is_no_text_is_left_out_with_a_word(services) -> None:
    # RU239
    folder = services.files / "mixed"
    put(folder, index_md="# M\n", a_md="a", a__index_md="hides", secret="x")
    (folder / "pic.png").write_bytes(b"\x89PNG\0")
    (folder / "latin.md").write_bytes("Für alle.".encode("latin-1"))
    (folder / ".hidden").write_text("x")
    (folder / "link.md").symlink_to("/etc/passwd")
    (folder / "up").symlink_to("..")
    entry = await load(services, "mixed")
    assert entry.body.splitlines()[-1] == (
        "Not loaded: a.md (hidden by another), latin.md (likely Windows-1252), link.md (a link), pic.png (binary), "
        "up (a link)."
    )
    assert set(await loaded(services, "mixed")) == {"skill://mixed", "skill://mixed/a", "skill://mixed/secret"}


async def test_a_skill_is_read_in_the_encodings_of_other_files(services) -> None:
    # RU239
    folder = services.files / "marked"
    put(folder, index_md="# M\n")
    for encoding in ("utf-16", "utf-32", "utf-8-sig"):
        (folder / f"{encoding}.md").write_bytes("grüße".encode(encoding))
    await load(services, "marked")
    assert {body for body, _ in (await loaded(services, "marked")).values()} == {"# M\n", "grüße"}
    (services.files / "kana.md").write_bytes("これは".encode("cp932"))
    (services.files / "kanas").mkdir()
    (services.files / "kanas/index.md").write_bytes("これは".encode("cp932"))
    for path, file in (("kana.md", "kana.md"), ("kanas", "kanas/index.md")):
        entry = await load(services, path)
        assert (entry.status, json.loads(entry.attributes_json)["foreign_encoding"]) == (415, "Shift-JIS")
        assert entry.body.startswith(f"{file} is text, but neither UTF-8")
        assert "iconv" in entry.body


async def test_a_name_that_is_no_text_is_left_out_with_a_word(services) -> None:
    # RU239
    folder = services.files / "names"
    put(folder, index_md="# N\n")
    for name in (b"\xff.md", b"\xfe.png", b"a\nb.md"):
        (folder / os.fsdecode(name)).write_bytes(b"\0" if name.endswith(b".png") else b"x")
    entry = await load(services, "names")
    told = "Not loaded: a?b.md (no name for an entry), ?.png (binary), ?.md (no name for an entry)."
    assert (entry.status, entry.body.splitlines()[-1]) == (200, told)
    assert set(await loaded(services, "names")) == {"skill://names"}


@pytest.mark.parametrize(
    "path",
    ["../outside.md", "/etc/passwd", "..", "skills/../../outside.md", "leads-out", "leads-out/outside.md", "~/x.md"],
)
async def test_a_path_does_not_leave_the_project_or_the_skills_of_the_home(services, path) -> None:
    # RU239
    put(services.root, outside_md="outside")
    put(services.root / "home", outside_md="outside")
    for folder in (services.files, services.root / "home/skills"):
        folder.mkdir(exist_ok=True)
        if not (folder / "leads-out").is_symlink():
            (folder / "leads-out").symlink_to("..")
    entry = await load(services, path)
    assert entry.outcome == ("not_found:404" if path.startswith("~") else "permission:403")
    assert not [e.path async for e in services.client.list_entries(services.project, services.run, "skill://**")]


@pytest.mark.parametrize(
    "name",
    ["../evil.md", "a/../../evil.md", "/etc/evil.md", "a\\..\\evil.md", "C:/evil.md", "a/./b.md", "a//b.md", "a\nb.md"],
)
async def test_an_archive_with_a_name_that_leaves_its_folder_is_refused_whole(services, name) -> None:
    # RU239
    (services.files / "slip.zip").write_bytes(zipped({"index.md": "# S\n", name: "x"}))
    entry = await load(services, "slip.zip")
    assert (entry.outcome, await loaded(services, "slip")) == ("permission:403", {})


async def test_links_in_an_archive_are_left_out(services) -> None:
    # RU239
    (services.files / "linked.zip").write_bytes(zipped({"index.md": "# L\n", "l.md": "/etc/passwd"}, links={"l.md"}))
    entry = await load(services, "linked.zip")
    assert (entry.status, "l.md (a link)" in entry.body) == (200, True)
    assert set(await loaded(services, "linked")) == {"skill://linked"}


def damaged(data):
    return data[:60] + b"\0\0\0\0" + data[64:]


def lying(data):
    """An archive that says in both of its heads that a file has ten bytes."""
    size = (40_000).to_bytes(4, "little")
    return data.replace(size, (10).to_bytes(4, "little"))


BOMBS = {
    "more bytes than are loaded": (zipped({f"{n}.md": b"0" * 20_000 for n in range(3)}), "too_large:413"),
    "a hundred times its size": (zipped({"index.md": b"0" * 49_000_000}), "too_large:413"),
    "more files than are loaded": (zipped({f"{n}.md": b"x" for n in range(21)}), "too_large:413"),
    "a size that is not true": (lying(zipped({"index.md": b"0" * 40_000})), "unsupported:415"),
    "a broken body": (damaged(zipped({"index.md": bytes(range(256)) * 20})), "unsupported:415"),
    "no end": (zipped({"index.md": b"x"})[:-10], "unsupported:415"),
    "no text in it": (zipped({"a.bin": b"\0"}), "unsupported:415"),
    "a method that unpacks without measure": (
        zipped({"index.md": "x" * 9}, method=zipfile.ZIP_BZIP2),
        "unsupported:415",
    ),
    "nothing in it": (zipped({}), "unsupported:415"),
}


@pytest.mark.parametrize(("data", "outcome"), BOMBS.values(), ids=BOMBS.keys())
async def test_an_archive_that_is_too_large_or_broken_is_refused(services, data, outcome) -> None:
    # RU239
    services.web.pages["/bomb.zip"] = typed(data, "application/zip")
    (services.files / "bomb.zip").write_bytes(data)
    entries = [await load(services, path) for path in ("bomb.zip", f"{services.web.url}/bomb.zip")]
    assert ([entry.outcome for entry in entries], await loaded(services, "bomb")) == ([outcome] * 2, {})


async def test_a_folder_that_is_too_large_is_refused(services) -> None:
    # RU239
    put(services.files / "many", **{f"f{number}_md": "x" for number in range(21)})
    put(services.files / "large", a_md="x" * 30_000, b_md="x" * 30_000)
    put(services.files / "deep", **{"__".join("d" * 20) + "__a_md": "x"})
    outcomes = [(await load(services, name)).outcome for name in ("many", "large", "deep")]
    assert outcomes == ["too_large:413"] * 3


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("", "invalid:400"),
        ("none", "not_found:404"),
        ("https://", "invalid:400"),
        ("http://127.0.0.2/a.md", "permission:403"),
    ],
)
async def test_what_is_no_skill_is_a_failed_command(services, path, outcome) -> None:
    # RU239
    assert (await load(services, path)).outcome == outcome


async def test_what_the_project_ignores_is_no_part_of_a_skill(services) -> None:
    # RU114
    put(services.files / "partly", index_md="# P\n", secret_md="x")
    await services.client.set_file_constraints(services.project, {"partly/secret.md": IGNORE})
    await load(services, "partly")
    assert set(await loaded(services, "partly")) == {"skill://partly"}
