"""set. Rows RU009, RU023, RU124, RU203, RU205, RU221; decisions C5, C17."""

import pytest
from turnwright_values.types import FileEdit, FileEffect, State, Tier, Visibility

from cases import load_cases
from turnwright_core.value_methods import status_of
from turnwright_executor.domain.command_record import Done
from turnwright_executor.tools.contract import Proposed

from .bench import both

VISIBLE, SUMMARIZED, ARCHIVED = Visibility.VISIBLE, Visibility.SUMMARIZED, Visibility.ARCHIVED
GATE = [case for case in load_cases("rummy/budget.jsonl") if "known_body_chars" in case["input"]]
EDIT = '<set path="a.py"><<SEARCH\ntwo\nSEARCH\n<<REPLACE\nzwei\nREPLACE</set>'


@pytest.mark.parametrize("path", ["known://a", "unknown://why", "skill://x/y", "sh://turn_1/a_1"])
@pytest.mark.asyncio(loop_scope="module")
async def test_an_entry_is_written_at_once_by_the_model_and_visible(bench, path):
    done = await bench.prepare(f'<set path="{path}" summary="in short">a fact</set>')
    assert (done.body, done.state) == (f"{path}: 1 line, 3 tokens", State.RESOLVED)
    entry = await bench.entry(path)
    assert (entry.body, entry.writer, entry.visibility) == ("a fact", Tier.MODEL, VISIBLE)
    assert await bench.attributes(path) == {"summary": "in short"}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_write_keeps_visibility_and_attributes_unless_it_names_them(bench):
    await bench.put("known://a", "old", visibility=ARCHIVED, summary="s", other=1)
    await bench.prepare('<set path="known://a">new</set>')
    assert ((await bench.entry("known://a")).body, (await bench.view())["known://a"]) == ("new", ARCHIVED)
    assert await bench.attributes("known://a") == {"summary": "s", "other": 1}
    await bench.prepare('<set path="known://a" visibility="summarized" summary="t">newer</set>')
    assert (await bench.view())["known://a"] is SUMMARIZED
    assert await bench.attributes("known://a") == {"summary": "t", "other": 1}


@pytest.mark.asyncio(loop_scope="module")
async def test_an_entry_is_edited_in_place(bench):
    await bench.put("known://a", "one\ntwo\n")
    await bench.prepare(EDIT.replace("a.py", "known://a"))
    assert (await bench.entry("known://a")).body == "one\nzwei\n"


@pytest.mark.parametrize("path", ["prompt://1", "system://1", "run://x", "log://turn_1/get/a", "instructions://system"])
@pytest.mark.asyncio(loop_scope="module")
async def test_what_belongs_to_the_runtime_is_refused_before_the_store_is_asked(bench, path):
    done = await bench.prepare(f'<set path="{path}">mine now</set>')
    assert (done.outcome, done.writes) == ("permission:403", ())


# RU221, C17
@pytest.mark.parametrize(
    ("earlier", "body", "fits"),
    [
        (None, "x" * 1024, True),
        (None, "x" * 1025, False),
        ("x" * 1024, "<<APPEND y APPEND", False),
        ("a " + "x" * 1000, "<<SEARCH a SEARCH <<REPLACE " + "b" * 30 + " REPLACE", False),
        ("x" * 2000, "short", True),
    ],
    ids=["longest", "too long", "append", "edit", "shorter"],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_known_entry_holds_512_tokens_however_it_gets_there(bench, earlier, body, fits):
    if earlier:
        await bench.put("known://a", earlier)
    done = await bench.prepare(f'<set path="known://a">{body}</set>')
    if fits:
        assert done.state is State.RESOLVED
        return
    assert (done.outcome, done.writes) == ("too_large:413", ())
    assert "512" in done.body
    assert "one fact per entry" in done.body


@pytest.mark.parametrize("case", GATE, ids=[case["id"] for case in GATE])
@pytest.mark.asyncio(loop_scope="module")
async def test_the_gate_stands_where_the_cases_say(bench, case):
    done = await bench.prepare(f'<set path="known://a">{"x" * case["input"]["known_body_chars"]}</set>')
    assert (done.state is State.RESOLVED) is case["expected"]["accepted"]
    assert f"{case['expected']['tokens']} tokens" in done.body
    assert status_of(done.state, done.outcome) == case["expected"].get("status", 200)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_gate_is_for_known_entries_only(bench):
    assert (await bench.prepare(f'<set path="unknown://a">{"x" * 2000}</set>')).state is State.RESOLVED


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_file_is_proposed_and_nothing_changes_before_it_is_accepted(bench):
    await bench.file("a.py", "one\ntwo\n")
    proposal = await bench.prepare(EDIT)
    assert isinstance(proposal, Proposed)
    assert proposal.body == "edit a.py (+1 -1)"
    assert isinstance(proposal.effect, FileEffect)
    (edit,) = proposal.effect.edits
    patch = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n"
    assert edit == FileEdit("a.py", (await bench.entry("a.py")).hash, "one\nzwei\n", patch)
    assert (bench.text("a.py"), (await bench.entry("a.py")).body) == ("one\ntwo\n", "one\ntwo\n")


@pytest.mark.parametrize("visibility", [VISIBLE, SUMMARIZED, ARCHIVED])
@pytest.mark.asyncio(loop_scope="module")
@both
async def test_an_accepted_edit_is_on_the_disk_and_in_the_store_and_visibility_stays(bench, visibility):
    await bench.file("a.py", "one\r\ntwo\r\n", visibility=visibility)
    done = await bench.run(EDIT)
    assert (done.state, done.body) == (State.RESOLVED, "edit a.py (+1 -1)")
    assert bench.text("a.py") == (await bench.entry("a.py")).body == "one\r\nzwei\r\n"
    assert await bench.view() == {"a.py": visibility}
    assert await bench.attributes("a.py") == {"bytes": 11}


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_new_file_is_visible(bench):
    done = await bench.run('<set path="new/b.py"><<NEW\nprint(1)\nNEW</set>')
    assert done.body.startswith("create new/b.py (1 line)")
    assert bench.text("new/b.py") == (await bench.entry("new/b.py")).body
    assert "print(1)" in bench.text("new/b.py")
    assert await bench.view() == {"new/b.py": VISIBLE}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_visibility_that_an_edit_names_is_honoured(bench):
    await bench.file("a.py", "one\ntwo\n", visibility=VISIBLE)
    await bench.run(EDIT.replace(">", ' visibility="archived" summary="s">', 1))
    assert await bench.view() == {"a.py": ARCHIVED}
    assert await bench.attributes("a.py") == {"bytes": 9, "summary": "s"}


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_an_edit_is_made_from_the_disk_and_not_from_memory(bench):
    await bench.file("a.py", "one\ntwo\n")
    await bench.file("a.py", "zero\none\ntwo\n", known=False)
    await bench.run(EDIT)
    assert bench.text("a.py") == "zero\none\nzwei\n"


@pytest.mark.parametrize("change", ["rewritten", "deleted"])
@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_file_that_changed_after_the_proposal_is_a_conflict(bench, change):
    await bench.file("a.py", "one\ntwo\n")
    proposal = await bench.prepare(EDIT)
    if change == "rewritten":
        await bench.file("a.py", "mine\n", known=False)
    else:
        (bench.root / "a.py").unlink()
    done = await bench.perform(EDIT, proposal)
    assert (done.state, done.outcome, done.writes) == (State.FAILED, "conflict:409", ())
    assert not (bench.root / "a.py").exists() or bench.text("a.py") == "mine\n"


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_an_effect_may_be_carried_out_twice(bench):
    await bench.file("a.py", "one\ntwo\n")
    proposal = await bench.prepare(EDIT)
    first, second = await bench.perform(EDIT, proposal), await bench.perform(EDIT, proposal)
    assert first.state is second.state is State.RESOLVED
    assert bench.text("a.py") == "one\nzwei\n"


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("<<SEARCH\nnot there\nSEARCH\n<<REPLACE\nx\nREPLACE", "conflict:409"),
        ("<<DELETE\nnot there\nDELETE", "conflict:409"),
        ("<<SEARCH\none\nSEARCH", "invalid:400"),
    ],
)
@pytest.mark.parametrize("path", ["a.py", "known://a"])
@pytest.mark.asyncio(loop_scope="module")
async def test_an_edit_that_does_not_fit_fails_with_advice(bench, path, body, outcome):
    await bench.file("a.py", "one\ntwo\n")
    await bench.put("known://a", "one\ntwo\n")
    done = await bench.prepare(f'<set path="{path}">{body}</set>')
    assert (done.state, done.outcome, done.writes) == (State.FAILED, outcome, ())
    assert len(done.body) > 20


@pytest.mark.parametrize(("path", "text"), [("a.py", "same"), ("known://a", "same")])
@pytest.mark.asyncio(loop_scope="module")
async def test_an_edit_without_effect_is_a_note(bench, path, text):
    await bench.file("a.py", "same")
    await bench.put("known://a", "same")
    done = await bench.prepare(f'<set path="{path}">{text}</set>')
    assert (done.state, done.writes) == (State.RESOLVED, ())
    assert "nothing was changed" in done.body


@pytest.mark.parametrize("path", ["../out.py", "/tmp/out.py", ".git/hooks/pre-commit", ".turnwright/workspace"])
@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_path_outside_of_the_project_is_refused(bench, path):
    done = await bench.prepare(f'<set path="{path}">x</set>')
    assert (done.state, done.outcome) == (State.FAILED, "permission:403")
    assert path in done.body


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_file_that_is_no_text_is_not_edited(bench):
    (bench.root / "b.bin").write_bytes(b"\xff")
    assert (await bench.prepare('<set path="b.bin">x</set>')).outcome == "unsupported:415"


@pytest.mark.parametrize("path", ["src/**/*.py", "src/*.py", "known://*", "/\\.py$/"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_needs_one_exact_path(bench, path):
    assert (await bench.prepare(f'<set path="{path}">x</set>')).outcome == "invalid:400"


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_file_with_brackets_in_its_name_can_be_made(bench):
    await bench.run('<set path="app/[id]/page.tsx">x</set>')
    assert bench.text("app/[id]/page.tsx") == "x"


@pytest.mark.parametrize("word", ["visible", "summarized", "archived"])
@pytest.mark.asyncio(loop_scope="module")
async def test_visibility_is_set_without_a_body(bench, word):
    await bench.file("a.py", "text", visibility=SUMMARIZED)
    await bench.put("known://a", "fact", visibility=SUMMARIZED)
    for path in ("a.py", "known://a"):
        assert isinstance(await bench.prepare(f'<set path="{path}" visibility="{word}"/>'), Done)
        assert (await bench.view())[path] is Visibility[word.upper()]
        assert (await bench.entry(path)).body in ("text", "fact")


@pytest.mark.asyncio(loop_scope="module")
async def test_visibility_is_set_for_all_that_match(bench):
    await bench.file("src/a.py", "x")
    await bench.file("src/b/c.py", "x")
    await bench.file("d.py", "x")
    done = await bench.prepare('<set path="src/**/*.py" visibility="summarized"/>')
    assert done.body == "src/a.py\nsrc/b/c.py"
    assert await bench.view() == {"src/a.py": SUMMARIZED, "src/b/c.py": SUMMARIZED, "d.py": ARCHIVED}
    assert (await bench.prepare('<set path="nothing/*" visibility="visible"/>')).outcome == "not_found:404"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_summary_has_80_characters_and_survives_visibility_changes(bench):
    await bench.put("known://a", "fact")
    await bench.prepare(f'<set path="known://a" summary="{"ä" * 90}"/>')
    await bench.prepare('<set path="known://a" visibility="archived"/>')
    await bench.prepare('<get path="known://a"/>')
    assert await bench.attributes("known://a") == {"summary": "ä" * 80}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_record_may_be_hidden_but_not_described(bench):
    await bench.put("log://turn_1/get/a", "a: 1 line")
    await bench.prepare('<set path="log://turn_1/get/a" visibility="archived"/>')
    assert await bench.view() == {"log://turn_1/get/a": ARCHIVED}
    assert (await bench.prepare('<set path="log://turn_1/get/a" summary="x"/>')).outcome == "permission:403"


@pytest.mark.asyncio(loop_scope="module")
async def test_neither_body_nor_visibility_says_nothing_about_what_exists(bench):
    await bench.put("known://a", "fact")
    assert (await bench.prepare('<set path="known://a"></set>')).outcome == "invalid:400"
    assert (await bench.prepare('<set path="known://empty"></set>')).state is State.RESOLVED
    assert (await bench.entry("known://empty")).body == ""


@pytest.mark.asyncio(loop_scope="module")
async def test_a_change_that_no_record_can_hold_is_refused(bench):
    await bench.file("a.py", "x")
    done = await bench.prepare('<set path="a.py">' + "long line of text\n" * 60_000 + "</set>")
    assert isinstance(done, Done)
    assert done.outcome == "too_large:413"
