"""rm, cp, mv. Rows RU009, RU025-RU027, RU150, RU259; decision C17; the cases of proposals."""

import pytest
from turnwright_values.types import FileEffect, State, Tier, Visibility

from cases import load_cases
from turnwright_executor.domain.command_record import Done
from turnwright_executor.tools.contract import Proposed
from turnwright_executor.tools.copying import destination

from .bench import both

VISIBLE, SUMMARIZED, ARCHIVED = Visibility.VISIBLE, Visibility.SUMMARIZED, Visibility.ARCHIVED
PROPOSING = [case for case in load_cases("rummy/proposals.jsonl") if "tool" in case["input"]]


def text_of(tool: str, target: str) -> str:
    if tool in ("sh", "env"):
        return f"<{tool}>{target}</{tool}>"
    source, _, to = target.partition(" -> ")
    return f'<{tool} path="{source}" to="{to}"/>' if to else f'<{tool} path="{source}"/>'


# RU009
@pytest.mark.parametrize("case", PROPOSING, ids=[case["id"] for case in PROPOSING])
@pytest.mark.asyncio(loop_scope="module")
async def test_the_cases_say_what_is_proposed(bench, case):
    for path in ("src/doomed.js", "src/target.js"):
        await bench.file(path, "x")
    for path in ("known://ephemeral", "known://a"):
        await bench.put(path, "x")
    prepared = await bench.prepare(text_of(case["input"]["tool"], case["input"]["target"]))
    assert isinstance(prepared, Proposed) is (case["expected"]["state"] == "proposed")
    assert isinstance(prepared, Proposed) or prepared.state is State.RESOLVED


@pytest.mark.parametrize(
    "text",
    [
        '<set path="a">new</set>',
        '<rm path="a"/>',
        '<mv path="a" to="b"/>',
        '<mv path="a" to="known://b"/>',
        '<mv path="known://a" to="b"/>',
        '<cp path="a" to="b"/>',
        "<sh>true</sh>",
        "<env>true</env>",
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_whatever_touches_the_world_is_proposed(bench, text):
    await bench.file("a", "x")
    await bench.put("known://a", "x")
    assert isinstance(await bench.prepare(text), Proposed)


# ---- rm


@pytest.mark.asyncio(loop_scope="module")
async def test_entries_go_at_once(bench):
    for path in ("known://temp_a", "known://temp_b", "known://kept"):
        await bench.put(path, "x")
    done = await bench.prepare('<rm path="known://temp_*"/>')
    assert done.body == "known://temp_a\nknown://temp_b"
    assert list(await bench.view()) == ["known://kept"]


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_files_go_when_it_is_accepted(bench):
    await bench.file("src/a.py", "one\n")
    await bench.file("src/b.py", "two\n")
    text = '<rm path="src/*.py"/>'
    proposal = await bench.prepare(text)
    assert proposal.body == "remove src/a.py\nremove src/b.py"
    assert "-one" in proposal.effect.edits[0].patch
    assert bench.text("src/a.py") == "one\n"
    done = await bench.perform(text, proposal)
    assert done.state is State.RESOLVED
    assert list(bench.root.rglob("*.py")) == []
    assert await bench.view() == {}


@pytest.mark.parametrize("flag", ["preview", "manifest"])
@pytest.mark.parametrize("path", ["known://*", "src/**"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_manifest_removes_nothing(bench, path, flag):
    await bench.put("known://a", "x")
    await bench.file("src/a.py", "x")
    done = await bench.prepare(f'<rm path="{path}" {flag}/>')
    assert isinstance(done, Done)
    assert done.body in ("known://a: 1 line, 1 token", "src/a.py: 1 line, 1 token")
    assert len(await bench.view()) == 2


@pytest.mark.parametrize("path", ["src/none.py", "known://none", "known://none_*", "none/*"])
@pytest.mark.asyncio(loop_scope="module")
async def test_what_does_not_exist_is_not_found(bench, path):
    for text in (f'<rm path="{path}"/>', f'<mv path="{path}" to="known://x"/>', f'<cp path="{path}" to="known://x"/>'):
        done = await bench.prepare(text)
        assert (done.state, done.outcome) == (State.FAILED, "not_found:404")
        assert path in done.body


@pytest.mark.asyncio(loop_scope="module")
async def test_an_entry_of_a_file_that_is_gone_goes_too(bench):
    await bench.put("gone.py", "x")
    assert isinstance(await bench.prepare('<rm path="gone.py"/>'), Done)
    assert await bench.view() == {}


@pytest.mark.parametrize("path", ["prompt://1", "log://turn_1/get/a", "log://**"])
@pytest.mark.asyncio(loop_scope="module")
async def test_what_belongs_to_the_runtime_stays(bench, path):
    await bench.put("prompt://1", "x")
    await bench.put("log://turn_1/get/a", "x")
    assert (await bench.prepare(f'<rm path="{path}"/>')).outcome == "permission:403"
    assert len(await bench.view()) == 2


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_binary_file_can_be_removed(bench):
    (bench.root / "b.bin").write_bytes(b"\xff")
    assert (await bench.run('<rm path="b.bin"/>')).state is State.RESOLVED
    assert not (bench.root / "b.bin").exists()


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_of_several_files_none_goes_when_one_has_changed(bench):
    await bench.file("a.py", "a")
    await bench.file("b.py", "b")
    text = '<rm path="*.py"/>'
    proposal = await bench.prepare(text)
    await bench.file("b.py", "changed", known=False)
    assert (await bench.perform(text, proposal)).outcome == "conflict:409"
    assert bench.text("a.py") == "a"


# ---- cp and mv


@pytest.mark.asyncio(loop_scope="module")
async def test_an_entry_is_copied_with_its_summary(bench):
    await bench.put("known://a", "fact", summary="s", visibility=ARCHIVED)
    done = await bench.prepare('<cp path="known://a" to="unknown://b"/>')
    assert done.body == "known://a -> unknown://b"
    assert ((await bench.entry("unknown://b")).body, (await bench.entry("unknown://b")).writer) == ("fact", Tier.MODEL)
    assert await bench.attributes("unknown://b") == {"summary": "s"}
    assert await bench.view() == {"known://a": ARCHIVED, "unknown://b": VISIBLE}


@pytest.mark.asyncio(loop_scope="module")
async def test_an_entry_is_moved(bench):
    await bench.put("unknown://a", "fact")
    await bench.prepare('<mv path="unknown://a" to="known://a" visibility="summarized"/>')
    assert await bench.view() == {"known://a": SUMMARIZED}
    assert (await bench.entry("known://a")).body == "fact"


@pytest.mark.parametrize(("tool", "left"), [("cp", True), ("mv", False)])
@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_file_goes_to_another_file(bench, tool, left):
    await bench.file("src/a.py", "text\n")
    done = await bench.run(f'<{tool} path="src/a.py" to="lib/b.py"/>')
    assert done.state is State.RESOLVED
    assert bench.text("lib/b.py") == (await bench.entry("lib/b.py")).body == "text\n"
    assert (bench.root / "src/a.py").exists() is left
    assert ("src/a.py" in await bench.view()) is left
    assert (await bench.view())["lib/b.py"] is VISIBLE


@pytest.mark.parametrize(("tool", "left"), [("cp", True), ("mv", False)])
@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_file_becomes_an_entry(bench, tool, left):
    await bench.file("a.md", "fact")
    done = await bench.run(f'<{tool} path="a.md" to="known://a"/>')
    assert done.state is State.RESOLVED
    assert (await bench.entry("known://a")).body == "fact"
    assert (bench.root / "a.md").exists() is left


@pytest.mark.parametrize(("tool", "left"), [("cp", True), ("mv", False)])
@pytest.mark.asyncio(loop_scope="module")
async def test_an_entry_becomes_a_file(bench, tool, left):
    await bench.put("known://a", "fact")
    await bench.run(f'<{tool} path="known://a" to="docs/"/>')
    assert bench.text("docs/a") == "fact"
    assert ("known://a" in await bench.view()) is left


@pytest.mark.asyncio(loop_scope="module")
async def test_a_move_to_an_entry_may_be_carried_out_twice(bench):
    await bench.file("a.md", "fact")
    text = '<mv path="a.md" to="known://a"/>'
    proposal = await bench.prepare(text)
    await bench.perform(text, proposal)
    assert (await bench.perform(text, proposal)).state is State.RESOLVED
    assert (await bench.entry("known://a")).body == "fact"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_that_changed_after_the_proposal_is_not_moved(bench):
    await bench.file("a.md", "fact")
    text = '<mv path="a.md" to="known://a"/>'
    proposal = await bench.prepare(text)
    await bench.file("a.md", "other", known=False)
    assert (await bench.perform(text, proposal)).outcome == "conflict:409"
    assert bench.text("a.md") == "other"
    assert "known://a" not in await bench.view()


# RU026
@pytest.mark.asyncio(loop_scope="module")
async def test_a_glob_copies_all_that_match(bench):
    for name in ("plan_a", "plan_b", "other"):
        await bench.put(f"known://{name}", name)
    await bench.prepare('<cp path="known://plan_*" to="known://old/" visibility="archived"/>')
    assert (await bench.view())["known://old/plan_a"] is (await bench.view())["known://old/plan_b"] is ARCHIVED
    assert len(await bench.view()) == 5


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_glob_moves_files_and_keeps_their_folders(bench):
    await bench.file("src/a.py", "a")
    await bench.file("src/deep/b.py", "b")
    text = '<mv path="src/**/*.py" to="lib/"/>'
    proposal = await bench.prepare(text)
    assert isinstance(proposal.effect, FileEffect)
    await bench.perform(text, proposal)
    assert (bench.text("lib/a.py"), bench.text("lib/deep/b.py")) == ("a", "b")
    assert sorted(await bench.view()) == ["lib/a.py", "lib/deep/b.py"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_glob_moves_entries_into_files(bench):
    await bench.put("known://a", "1")
    await bench.put("known://b", "2")
    await bench.run('<mv path="known://*" to="notes/"/>')
    assert (bench.text("notes/a"), bench.text("notes/b")) == ("1", "2")
    assert sorted(await bench.view()) == ["notes/a", "notes/b"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_preview_lists_sources_with_destinations(bench):
    await bench.file("src/a.py", "a")
    done = await bench.prepare('<mv path="src/*.py" to="lib/" preview/>')
    assert (done.body, done.writes) == ("src/a.py -> lib/a.py", ())


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('<cp path="known://long" to="known://b"/>', "too_large:413"),
        ('<mv path="unknown://long" to="known://b"/>', "too_large:413"),
        ('<cp path="known://a" to="prompt://9"/>', "permission:403"),
        ('<mv path="prompt://1" to="known://b"/>', "permission:403"),
        ('<cp path="known://a" to="../b"/>', "permission:403"),
        ('<cp path="known://a" to="known://a"/>', "invalid:400"),
        ('<cp path="known://a"/>', "invalid:400"),
        ('<cp path="/.*a/" to="known://x/"/>', "invalid:400"),
        ('<cp path="b.bin" to="c.bin"/>', "unsupported:415"),
        ('<mv path="known://a" to="b" visibility="loud"/>', "invalid:400"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_copy_passes_the_gates_of_a_write(bench, text, outcome):
    for path, body in {
        "known://long": "x" * 1100,
        "unknown://long": "x" * 1100,
        "known://a": "a",
        "prompt://1": "p",
    }.items():
        await bench.put(path, body)
    await bench.file("a", "x")
    (bench.root / "b.bin").write_bytes(b"\xff")
    before = await bench.view()
    done = await bench.prepare(text)
    assert (done.state, done.outcome) == (State.FAILED, outcome)
    assert await bench.view() == before


@pytest.mark.parametrize(
    ("pattern", "source", "to", "expected"),
    [
        ("a.py", "a.py", "b.py", "b.py"),
        ("src/a.py", "src/a.py", "lib/", "lib/a.py"),
        ("known://a/b", "known://a/b", "known://old/", "known://old/b"),
        ("known://plan_*", "known://plan_a", "known://old/", "known://plan_old".replace("plan_old", "old/plan_a")),
        ("known://x/*", "known://x/a/b", "known://y", "known://y/a/b"),
        ("src/**/*.py", "src/a/b.py", "lib", "lib/a/b.py"),
        ("*.py", "a.py", "lib/", "lib/a.py"),
        ("{a,b}/*.py", "a/x.py", "lib/", "lib/a/x.py"),
    ],
)
def test_a_source_keeps_its_path_below_the_fixed_part_of_a_pattern(pattern, source, to, expected):
    assert destination(pattern, source, to) == expected


@pytest.mark.parametrize("path", ["a", "a/"])
@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_file_that_has_become_a_folder_is_not_removed(bench, path):
    await bench.put("a", "x", bytes=1)
    (bench.root / "a").mkdir(exist_ok=True)
    done = await bench.prepare(f'<rm path="{path}"/>')
    assert isinstance(done, Done)
    assert (done.outcome, done.body) == ("invalid:400", "a is a directory. Use a/** for the files in it.")


@pytest.mark.asyncio(loop_scope="module")
async def test_the_record_of_a_change_of_many_files_names_only_some(bench):
    for number in range(210):
        await bench.put(f"known://{number:03}", "x")
    done = await bench.run('<cp path="known://*" to="out/"/>')
    lines = done.body.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (201, "create out/000 (1 line)", "... and 10 more")
