"""get. Rows RU024, RU150, RU167, RU175, RU201, RU202, RU204."""

import pytest
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier, Visibility

from cases import load_cases
from turnwright_executor.domain.command_record import Done
from turnwright_executor.tools.get import LINE_CHARS_MAX

from .bench import both

VISIBLE, SUMMARIZED, ARCHIVED = Visibility.VISIBLE, Visibility.SUMMARIZED, Visibility.ARCHIVED
PARTIAL = load_cases("rummy/get_partial.jsonl")


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_file_becomes_visible_and_the_record_stays_terse(bench):
    await bench.file("src/a.py", "one\ntwo\n")
    done = await bench.prepare('<get path="./src/a.py"/>')
    assert (done.body, done.state) == ("src/a.py: 2 lines, 4 tokens", State.RESOLVED)
    assert await bench.view() == {"src/a.py": VISIBLE}


@pytest.mark.asyncio(loop_scope="module")
async def test_an_archived_entry_becomes_visible_again(bench):
    await bench.put("known://a", "fact", visibility=ARCHIVED)
    assert (await bench.prepare('<get path="known://a"/>')).body == "known://a: 1 line, 2 tokens"
    assert await bench.view() == {"known://a": VISIBLE}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_look_leaves_state_and_content_as_they_are(bench):
    """RU024: an entry that failed has failed, however often it is read."""
    failed = SetEntry("words", '{"k":1}', visibility=ARCHIVED, state=State.FAILED, outcome="conflict:409")
    await bench.entries.write([EntryWrite("known://a", failed, Tier.PLUGIN)])
    before = await bench.entry("known://a")
    await bench.prepare('<get path="known://a"/>')
    after = await bench.entry("known://a")
    assert (after.status, after.state, after.outcome, after.body) == (
        409,
        before.state,
        "conflict:409",
        "words",
    )
    assert (before.visibility, after.visibility) == (ARCHIVED, VISIBLE)


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_file_is_read_from_the_disk_and_not_from_memory(bench):
    await bench.file("a", "old")
    await bench.file("a", "new", known=False)
    await bench.file("b", "b", known=False)
    await bench.prepare('<get path="a"/>')
    await bench.prepare('<get path="b"/>')
    assert ((await bench.entry("a")).body, (await bench.entry("b")).body) == ("new", "b")
    assert await bench.view() == {"a": VISIBLE, "b": VISIBLE}
    assert await bench.attributes("b") == {"bytes": 1}


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_glob_is_about_files_and_promotes_all_that_match(bench):
    for path in ("src/a.py", "src/deep/b.py", "src/c.txt"):
        await bench.file(path, "x")
    await bench.put("known://src/d.py", "x", visibility=ARCHIVED)
    done = await bench.prepare('<get path="src/**/*.py"/>')
    assert done.body.splitlines() == ["src/a.py: 1 line, 1 token", "src/deep/b.py: 1 line, 1 token"]
    assert [path for path, seen in (await bench.view()).items() if seen is VISIBLE] == ["src/a.py", "src/deep/b.py"]


@pytest.mark.parametrize("text", ["<get path='known://*'>auth</get>", "<get path='known://*'>/AU.H/i</get>"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_keeps_what_contains_it(bench, text):
    await bench.put("known://a", "the auth flow", visibility=ARCHIVED)
    await bench.put("known://b", "the database", visibility=ARCHIVED)
    await bench.prepare(text)
    assert await bench.view() == {"known://a": VISIBLE, "known://b": ARCHIVED}


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_path_in_brackets_is_itself_before_it_is_a_pattern(bench):
    await bench.file("app/[id]/page.tsx", "x")
    assert (await bench.prepare('<get path="app/[id]/page.tsx"/>')).body.startswith("app/[id]/page.tsx:")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_preview_lists_paths_with_tokens_and_promotes_nothing(bench):
    await bench.file("b", "1234")
    await bench.file("a", "12")
    await bench.put("known://k", "x", visibility=ARCHIVED)
    before = await bench.view()
    assert (await bench.prepare('<get path="**" preview/>')).body == "* a - 1 tokens\n* b - 2 tokens"
    assert (await bench.prepare('<get path="known://*" preview/>')).body == "* known://k - 1 tokens"
    assert await bench.view() == before


@pytest.mark.parametrize("case", PARTIAL, ids=[case["id"] for case in PARTIAL])
@pytest.mark.asyncio(loop_scope="module")
async def test_some_lines_are_shown_and_nothing_is_promoted(bench, case):
    given, expected = case["input"], case["expected"]
    await bench.file("src/a.js", given.get("body", "x"))
    await bench.put("known://a", given.get("body", "x"), visibility=SUMMARIZED)
    window = " ".join(f'{name}="{given[name]}"' for name in ("line", "limit") if name in given)
    before = await bench.view()
    for path in [given["path"]] if "path" in given else ["src/a.js", "known://a"]:
        done = await bench.prepare(f'<get path="{path}" {window}>{given.get("body_filter", "")}</get>')
        if "status" in expected:
            assert done.outcome == f"invalid:{expected['status']}"
        else:
            assert done.body == expected["slice"]
            assert done.attributes == {key: expected[key] for key in ("first", "last", "total")}
    assert await bench.view() == before


@pytest.mark.asyncio(loop_scope="module")
async def test_a_growing_entry_is_sampled_from_its_end(bench):
    await bench.put("sh://turn_2/make_1", "1\n2\n3\n", visibility=SUMMARIZED)
    assert (await bench.prepare('<get path="sh://turn_2/make_1" line="-2"/>')).body == "2\n3"


@pytest.mark.parametrize("line", [1, 2, 3])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_long_line_is_read_in_parts_by_the_offsets_that_it_tells(bench, line):
    lines = ["first", "second", "third"]
    lines[line - 1] = long = "".join(chr(0x4E00 + index % 5000) for index in range(LINE_CHARS_MAX * 2 + 7))
    await bench.file("a.min.js", "\n".join(lines) + "\n")
    told = (await bench.prepare('<get path="a.min.js"/>')).body
    assert told.endswith(f"tokens; line and offset show its line of {len(long)} characters in parts")
    done = await bench.prepare('<get path="a.min.js" line="1"/>')
    assert [each for each in lines if each in done.body] == [each for each in lines if each is not long]
    assert f'line="{line}" offset="{LINE_CHARS_MAX}"' in done.body
    read, offset = "", "0"
    while offset:
        body = (await bench.prepare(f'<get path="a.min.js" line="{line}" offset="{offset}"/>')).body
        text, mark = body.rsplit("\n", 1)
        read += text
        assert mark.startswith(f"[characters {int(offset) + 1} to {len(read)} of {len(long)} of line {line}")
        offset = mark.partition('offset="')[2].partition('"')[0]
    assert read == long


@pytest.mark.parametrize(
    ("offset", "shown"), [("0", "abc"), ("-1", "abc"), ("1", "bc\n[characters 2 to 3 of 3 of line 1]")]
)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_offset_is_of_one_line(bench, offset, shown):
    await bench.file("a", "abc\ndef\n")
    assert (await bench.prepare(f'<get path="a" offset="{offset}"/>')).body == shown
    assert (await bench.prepare(f'<get path="a" line="2" limit="5" offset="{offset}"/>')).attributes["last"] == 2
    assert (await bench.prepare('<get path="*" offset="1"/>')).outcome == "invalid:400"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_whole_number_may_have_a_point(bench):
    await bench.file("a", "1\n2\n3\n")
    assert (await bench.prepare('<get path="a" line="2.0" limit="1.00"/>')).body == "2"


@pytest.mark.parametrize("window", ['line="x"', 'limit=""', 'line="1.5"'])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_line_that_is_no_number_is_refused(bench, window):
    await bench.file("a", "x")
    assert (await bench.prepare(f'<get path="a" {window}/>')).outcome == "invalid:400"


@pytest.mark.parametrize(
    ("path", "near"),
    [("src/ap.py", "src/app.py"), ("app.py", "src/app.py"), ("known://tokens", "known://token"), ("zzz", None)],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_does_not_exist_is_not_found_and_near_paths_are_named(bench, path, near):
    await bench.file("src/app.py", "x")
    await bench.put("known://token", "x")
    done = await bench.prepare(f'<get path="{path}"/>')
    assert (done.state, done.outcome) == (State.FAILED, "not_found:404")
    assert path in done.body
    assert near is None or near in done.body


@pytest.mark.asyncio(loop_scope="module")
async def test_a_search_without_a_hit_is_an_answer(bench):
    done = await bench.prepare('<get path="known://*">nothing</get>')
    assert (done.state, done.writes) == (State.RESOLVED, ())
    assert "known://*" in done.body


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("../x", "permission:403"),
        ("/etc/passwd", "permission:403"),
        (".git/config", "permission:403"),
        (".turnwright/workspace", "permission:403"),
        ("src", "invalid:400"),
        ("b.bin", "unsupported:415"),
        ("/(/", "invalid:400"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
@both
async def test_what_cannot_be_read_fails_with_a_reason(bench, path, outcome):
    await bench.file("src/a", "x")
    (bench.root / "b.bin").write_bytes(b"\xff")
    done = await bench.prepare(f'<get path="{path}"/>')
    assert done.outcome == outcome
    assert len(done.body) > 10


@pytest.mark.parametrize("path", ["system://1", "instructions://system", "run://main", "assistant://*"])
@pytest.mark.asyncio(loop_scope="module")
async def test_what_the_model_may_not_see_is_not_there(bench, path):
    for hidden in ("system://1", "instructions://system", "run://main", "assistant://1"):
        await bench.put(hidden, "secret")
    done = await bench.prepare(f'<get path="{path}"/>')
    assert done.writes == ()
    assert "secret" not in done.body


@pytest.mark.asyncio(loop_scope="module")
async def test_another_visibility_may_be_asked_for(bench):
    await bench.file("a", "x")
    await bench.prepare('<get path="a" visibility="summarized"/>')
    assert await bench.view() == {"a": SUMMARIZED}
    assert (await bench.prepare('<get path="a" visibility="loud"/>')).outcome == "invalid:400"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_long_list_is_cut_in_the_record(bench):
    for number in range(250):
        await bench.put(f"known://{number:03}", "x", visibility=ARCHIVED)
    done = await bench.prepare('<get path="known://*"/>')
    assert isinstance(done, Done)
    assert done.body.splitlines()[-1] == "... and 50 more"
    assert set((await bench.view()).values()) == {VISIBLE}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_keeps_files_too(bench):
    await bench.file("src/a.py", "import os\n")
    await bench.file("src/b.py", "import sys\n")
    assert (await bench.prepare('<get path="src/*.py">import os</get>')).body == "src/a.py: 1 line, 5 tokens"
    assert await bench.view() == {"src/a.py": VISIBLE, "src/b.py": ARCHIVED}


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_of_many_files_those_that_are_no_text_stay_out(bench):
    await bench.file("a.txt", "x")
    await bench.put("b.bin", "", visibility=ARCHIVED, binary=True)
    (bench.root / "b.bin").write_bytes(b"\xff")
    assert (await bench.prepare('<get path="*"/>')).body == "a.txt: 1 line, 1 token\nb.bin: no text"
    assert await bench.view() == {"a.txt": VISIBLE, "b.bin": ARCHIVED}


@pytest.mark.asyncio(loop_scope="module")
async def test_many_large_files_that_changed_are_caught_up_with(bench):
    for number in range(60):
        await bench.file(f"{number:02}.txt", "old")
        await bench.file(f"{number:02}.txt", "x" * 90_000, known=False)
    done = await bench.prepare('<get path="*.txt"/>')
    assert len(done.writes) == 60
    assert {entry.body_size_bytes for entry in await bench.rows()} == {90_000}
    assert set((await bench.view()).values()) == {VISIBLE}
