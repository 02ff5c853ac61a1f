"""What is kept of a file, and what is told of one that changed meanwhile. Architecture 6, 11; rows RU009, RU205, RU253."""

import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace
from turnwright.types.v1.command_record_pb2 import CommandRecord, ProposedStage
from turnwright_values.types import CommandEffect, FileEdit, FileEffect, QuestionEffect, State

from turnwright_core.wire.proposals import proposed_contents
from turnwright_executor.domain.amending import amended_command, amended_edit, check_contents, edited_text
from turnwright_executor.tools.ask_user import OPTIONS_MAX, options_of
from turnwright_executor.tools.contract import Proposed
from turnwright_executor.tools.files import CONFLICT_CHARS_MAX
from turnwright_executor.wire.command_records import effect_from_pb, effect_to_pb

EDIT = '<set path="a.txt"><<SEARCH\ntwo\nSEARCH\n<<REPLACE\nzwei\ndrei\nREPLACE</set>'


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        ("one\r\ntwo\r\n", EDIT, "one\r\nzwei\r\ndrei\r\n"),
        ("one\r\ntwo", EDIT, "one\r\nzwei\r\ndrei"),
        ("one\ntwo", EDIT, "one\nzwei\ndrei"),
        ("one\ntwo\n", EDIT, "one\nzwei\ndrei\n"),
        ("one\r\ntwo\r\n", '<set path="a.txt"><<REPLACE\nnew\nlines\nREPLACE</set>', "new\r\nlines\r\n"),
        ("one\ntwo", '<set path="a.txt"><<REPLACE\nnew\nlines\nREPLACE</set>', "new\nlines"),
        ("one\ntwo", '<set path="a.txt">new</set>', "new"),
        ("one\ntwo\n", '<set path="a.txt">new</set>', "new\n"),
        ("\ufeffone\ntwo\n", EDIT, "\ufeffone\nzwei\ndrei\n"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_keeps_its_line_ends_and_how_it_ends(bench, before, text, after):
    await bench.file("a.txt", before)
    assert (await bench.run(text)).state is State.RESOLVED
    assert bench.text("a.txt") == after


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o444, 0o2664])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_keeps_its_mode(bench, mode):
    await bench.file("a.txt", "one\ntwo\n")
    (bench.root / "a.txt").chmod(mode)
    await bench.run(EDIT)
    assert stat.S_IMODE((bench.root / "a.txt").stat().st_mode) == mode
    assert [path.name for path in bench.root.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("tool", ["cp", "mv"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_copy_has_the_mode_of_its_source(bench, tool):
    await bench.file("run.sh", "#!/bin/sh\r\n")
    (bench.root / "run.sh").chmod(0o750)
    await bench.run(f'<{tool} path="run.sh" to="bin/go.sh"/>')
    assert stat.S_IMODE((bench.root / "bin" / "go.sh").stat().st_mode) == 0o750
    assert bench.text("bin/go.sh") == "#!/bin/sh\r\n"
    assert (bench.root / "run.sh").exists() is (tool == "cp")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_copy_over_a_file_leaves_the_mode_of_that_file(bench):
    await bench.file("run.sh", "new\n")
    await bench.file("old.sh", "old\n")
    (bench.root / "run.sh").chmod(0o755)
    (bench.root / "old.sh").chmod(0o640)
    await bench.run('<cp path="run.sh" to="old.sh"/>')
    assert stat.S_IMODE((bench.root / "old.sh").stat().st_mode) == 0o640


# ---- Conflicts


async def conflicting(bench, change):
    await bench.file("a.txt", "one\ntwo\n")
    proposal = await bench.prepare(EDIT)
    change(bench.root / "a.txt")
    done = await bench.perform(EDIT, proposal)
    assert (done.state, done.outcome, done.writes) == (State.FAILED, "conflict:409", ())
    return done


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda file: file.write_text("now this\n"), "on what it says now:\nnow this\n"),
        (lambda file: file.unlink(), "There is no regular file there."),
        (pipe, "There is no regular file there."),
        (lambda file: file.write_bytes(b"\xff\x00"), "It is not text, or too long (2 bytes)."),
        (lambda file: file.write_bytes(b"x" * 200_000), "It is not text, or too long (200000 bytes)."),
    ],
    ids=["another text", "gone", "a pipe", "no text", "too long to be read"],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_conflict_tells_what_is_there_now(bench, change, told):
    done = await conflicting(bench, change)
    assert done.body.startswith("a.txt has changed since the proposal was made, and was left as it is.")
    assert told in done.body


@pytest.mark.asyncio(loop_scope="module")
async def test_of_a_long_file_a_conflict_shows_the_beginning_to_a_whole_line(bench):
    done = await conflicting(bench, lambda file: file.write_text("0123456789\n" * 5000))
    shown = done.body.partition("now:\n")[2]
    assert len(shown) < CONFLICT_CHARS_MAX + 100
    lines = shown.splitlines()
    assert set(lines[:-1]) == {"0123456789"}
    assert lines[-1] == f"[... {5000 - len(lines) + 1} more lines; <get> shows them]"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_new_file_does_not_take_the_place_of_one_that_came_meanwhile(bench):
    text = '<set path="new.txt">mine</set>'
    proposal = await bench.prepare(text)
    (bench.root / "new.txt").write_text("theirs\n")
    done = await bench.perform(text, proposal)
    assert (done.outcome, bench.text("new.txt")) == ("conflict:409", "theirs\n")


@pytest.mark.asyncio(loop_scope="module")
async def test_an_effect_that_happened_is_recognised_though_the_file_is_too_long_to_be_read(bench):
    text = f'<set path="long.txt"><<NEW\n{"x" * 120_000}\nNEW</set>'
    proposal = await bench.prepare(text)
    first, second = await bench.perform(text, proposal), await bench.perform(text, proposal)
    assert first.state is second.state is State.RESOLVED


@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_person_wanted_is_kept_where_it_could_not_be_written(bench):
    await bench.file("a.txt", "one\ntwo\n")
    proposal = await bench.prepare(EDIT)
    assert isinstance(proposal, Proposed)
    [edit] = proposal.effect.edits
    amended = replace(proposal, effect=FileEffect((amended_edit(edit, "mine\n"),)))
    (bench.root / "a.txt").write_text("theirs\n")
    done = await bench.perform(EDIT, amended)
    assert (done.outcome, done.attributes) == ("conflict:409", {"unwritten": {"a.txt": "mine\n"}})


@pytest.mark.parametrize("text", ['<set path="a.txt">\ud800</set>', '<set path="new.txt">x\udfff</set>'])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_text_that_no_file_can_hold_is_refused(bench, text):
    await bench.file("a.txt", "one\n")
    done = await bench.prepare(text)
    assert (done.state, done.outcome) == (State.FAILED, "invalid:400")
    assert not isinstance(done, Proposed)


# ---- Other content

A, B = FileEdit("a", "h", "new a", "pa"), FileEdit("b", None, "new b", "pb")
GONE = FileEdit("c", "h", None, "pc")


@pytest.mark.parametrize(
    "effect",
    [
        FileEffect((A, replace(B, amended=True, like="a"), GONE)),
        CommandEffect("ls", 3.0),
        QuestionEffect("q", ("x", "y")),
        QuestionEffect("q", (), "z"),
        CommandEffect("ls", 3.0, read_only=True, producer="alice"),
        FileEffect(()),
    ],
)
def test_an_effect_survives_being_kept(effect):
    assert effect_from_pb(effect_to_pb(effect)) == effect


@pytest.mark.parametrize(
    ("effect", "contents"),
    [
        (FileEffect((A,)), {"": "x"}),
        (FileEffect((A, GONE)), {"": "x"}),
        (FileEffect((A, B)), {"a": "x"}),
        (FileEffect((A, B)), {"a": "x", "b": ""}),
        (CommandEffect("ls", 1.0), {"": "ls -l"}),
        (QuestionEffect("q"), {}),
        (FileEffect((GONE,)), {}),
    ],
)
def test_content_is_accepted_for_what_would_be_written(effect, contents):
    check_contents(effect, contents)
    record = CommandRecord(proposed=ProposedStage(effect=effect_to_pb(effect))).SerializeToString()
    assert set(contents) <= {*(one.path for one in proposed_contents(record)), ""}


def test_content_without_a_path_is_that_of_the_only_file():
    assert edited_text(FileEffect((A, GONE)), "a", {"": "x"}) == "x"
    assert edited_text(FileEffect((A, GONE)), "c", {"": "x"}) is None
    assert edited_text(FileEffect((A, B)), "b", {"a": "x"}) is None
    assert edited_text(FileEffect((A, B)), "a", {"a": ""}) == ""


def test_an_amended_edit_tells_how_it_differs_from_what_was_proposed():
    amended = amended_edit(FileEdit("a", "h", "new\n", "patch"), "newer\n")
    assert (amended.content, amended.base_hash, amended.amended) == ("newer\n", "h", True)
    assert "-new\n+newer\n" in amended.patch
    assert amended_edit(A, "new a") is A


def test_a_difference_that_is_too_long_for_a_reader_is_left_out():
    assert amended_edit(A, "x\n" * 20_000).patch == ""


def test_a_command_is_replaced_as_a_whole():
    assert amended_command(CommandEffect("ls", 1.0), {"": "ls -l"}) == CommandEffect("ls -l", 1.0)
    assert amended_command(CommandEffect("ls", 1.0), {}) == CommandEffect("ls", 1.0)


# ---- Questions


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("PG, SQLite", ("PG", "SQLite")),
        ("- half up\n- half to even, as now\n", ("half up", "half to even, as now")),
        ('["a", "b, c"]', ("a", "b, c")),
        ("[not json", ("[not json",)),
        ("a,a,,b", ("a", "b")),
        ("", ()),
        ("[" * 100_000, ("[" * 512,)),
    ],
)
def test_options_are_read_as_models_write_them(text, options):
    assert options_of(text) == options


def test_a_question_suggests_so_many_answers_at_most():
    assert len(options_of(",".join(map(str, range(100))))) == OPTIONS_MAX


def test_options_hold_only_what_a_record_can_hold():
    # JSON can spell half a character, and NUL.
    assert options_of(r'["a\ud800", "\u0000", ["b\udc00"]]') == ("a?", "\ufffd", "['b\\udc00']")
