"""Files in UTF-16 and UTF-32 are read and written back as they are; texts in other encodings are named."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnwright_values.types import State

from turnwright_executor.domain.encodings import FOREIGN, encoded, foreign_encoding, marked_text
from turnwright_executor.files.scan import DiskScanner
from turnwright_executor.files.workspace import DiskWorkspace
from turnwright_executor.tools.contract import Proposed

MARKS = {
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
TEXT = "eins\r\nzwei ä 漢 😀\r\n"
EDIT = '<set path="a.txt"><<SEARCH\neins\nSEARCH\n<<REPLACE\none\nREPLACE</set>'
EACH = pytest.mark.parametrize("encoding", MARKS)
OTHERS = {
    "Windows-1252": "Les élèves du café étaient là, très tôt.\n".encode("cp1252"),
    "Shift-JIS": "これは日本語のファイルです。\n".encode("cp932"),
    "EUC-JP": "これは日本語のファイルです。\n".encode("euc_jp"),
    "unknown": "Привет, мир! Это текст.\n".encode("koi8-r"),
}


def as_bytes(text: str, encoding: str) -> bytes:
    return MARKS[encoding] + text.encode(encoding)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.sampled_from(sorted(MARKS)))
def test_what_is_read_is_written_again_byte_by_byte(text, encoding):
    data = as_bytes(text, encoding)
    found = marked_text(data)
    assert found
    assert (found.text, found.encoding, encoded(found.text, found.encoding)) == (text, encoding, data)


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\x00", b"\xff\xfea", b"\xff\xfe\x00\xd8", b"\xfe\xff\x00\x00", b"\xef\xbb\xbfa", b"a\x00b\x00"]
)
def test_other_data_is_not_taken_for_utf_16(data):
    assert marked_text(data) is None


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\x00\xff", b"\x7fELF\xff", bytes(range(256))])
def test_binary_data_is_no_text_in_another_encoding(data):
    assert not foreign_encoding(data)


@EACH
@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_is_read_edited_and_written_back_in_its_encoding(bench, encoding):
    (bench.root / "a.txt").write_bytes(as_bytes(TEXT, encoding))
    assert (await bench.prepare('<get path="a.txt" line="2" limit="1"/>')).body == "zwei ä 漢 😀\r"
    assert (await bench.prepare('<get path="a.txt"/>')).state is State.RESOLVED
    assert (await bench.entry("a.txt")).body == TEXT
    proposal = await bench.prepare(EDIT)
    assert isinstance(proposal, Proposed)
    assert "-eins\r\n+one\r\n zwei ä 漢 😀\r\n" in proposal.effect.edits[0].patch
    done = await bench.perform(EDIT, proposal)
    assert (done.state, done.body) == (State.RESOLVED, "edit a.txt (+1 -1)")
    assert (bench.root / "a.txt").read_bytes() == as_bytes("one\r\nzwei ä 漢 😀\r\n", encoding)
    assert (await bench.attributes("a.txt"))["bytes"] == len((bench.root / "a.txt").read_bytes())
    assert (await bench.perform(EDIT, proposal)).state is State.RESOLVED, "carried out again, it is done already"


@EACH
@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_written_anew_keeps_its_encoding_and_so_does_a_copy(bench, encoding):
    (bench.root / "a.txt").write_bytes(as_bytes(TEXT, encoding))
    await bench.run('<cp path="a.txt" to="b.txt"/>')
    await bench.run('<mv path="b.txt" to="c.txt"/>')
    assert (bench.root / "c.txt").read_bytes() == as_bytes(TEXT, encoding)
    await bench.run('<set path="a.txt"><<NEW\nneu\nNEW</set>')
    data = (bench.root / "a.txt").read_bytes()
    assert data.startswith(MARKS[encoding])
    assert data.count(MARKS[encoding]) == 1
    assert "neu" in data.decode(encoding)


@EACH
@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_is_the_same_for_a_scan_as_for_a_command(bench, encoding):
    (bench.root / "a.txt").write_bytes(as_bytes(TEXT, encoding))
    (scanned,) = (await DiskScanner(bench.root, file_bytes_max=1000, files_max=9).scan()).changed
    read = await DiskWorkspace(bench.root, 1000).read("a.txt")
    assert read
    assert (scanned.text, scanned.hash, scanned.bytes_) == (read.text, read.hash, read.bytes_)
    await bench.prepare('<get path="a.txt"/>')
    assert (await bench.entry("a.txt")).hash == read.hash


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("text", ['<get path="a.txt"/>', '<get path="a.txt" line="1"/>', EDIT])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_text_in_another_encoding_is_named_with_the_way_out(bench, name, text):
    (bench.root / "a.txt").write_bytes(OTHERS[name])
    done = await bench.run(text)
    assert (done.state, done.outcome) == (State.FAILED, "unsupported:415")
    assert done.attributes == {FOREIGN: name}
    assert ("file -i" if name == "unknown" else name) in done.body
    assert "iconv" in done.body
    assert (bench.root / "a.txt").read_bytes() == OTHERS[name]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_binary_file_is_not_said_to_be_text(bench):
    (bench.root / "a.txt").write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff")
    done = await bench.run('<get path="a.txt"/>')
    assert (done.outcome, "binary" in done.body) == ("unsupported:415", True)
