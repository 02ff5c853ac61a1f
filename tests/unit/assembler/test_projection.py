import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwright_assembler.domain.projection import RECORD_CHARS, SUMMARY_CHARS, summarize

LONG = "".join(f"line {n}\n" for n in range(500))
SCHEMES = ["", "known", "skill", "https", "sh", "env", "unknown", "prompt", "log", "update", "custom"]


def test_what_is_short_is_shown_whole():
    assert summarize("a.py", "", "def f():\n    pass\n") == "def f():\n    pass\n"
    assert summarize("known://a", "known", "x" * SUMMARY_CHARS) == "x" * SUMMARY_CHARS


# RU185
def test_a_known_is_cut_after_five_hundred_characters():
    summary = summarize("known://a", "known", "x" * 2000)
    assert summary == "x" * SUMMARY_CHARS + "\n[the first 500 of 2000 characters]"


# RU185
def test_a_file_is_shown_by_its_definitions():
    body = "import os\n" * 60 + "class Shop:\n    def sell(self):\n" + "        pass\n" * 60
    assert summarize("shop.py", "", body) == "61: class Shop:\n62:     def sell(self):\n[outline of 123 lines]"


def test_a_text_file_is_shown_by_its_headings():
    body = "# One\n" + "words\n" * 200 + "## Two\n"
    assert summarize("doc.md", "", body) == "1: # One\n202: ## Two\n[outline of 203 lines]"


def test_a_file_without_definitions_is_shown_by_its_beginning():
    assert summarize("data.csv", "", LONG).startswith("line 0\nline 1\n")


@pytest.mark.parametrize("scheme", ["sh", "env"])
def test_a_channel_is_shown_by_its_end(scheme):
    summary = summarize(f"{scheme}://turn_1/x_1", scheme, LONG)
    first, _, rest = summary.partition("\n")
    assert LONG.endswith(rest)
    assert first == f"[the last {len(rest)} of {len(LONG)} characters]"
    assert rest.startswith("line ")


@pytest.mark.parametrize("scheme", ["log", "update", "error", "custom"])
def test_a_record_is_shown_by_its_first_line(scheme):
    assert summarize(f"{scheme}://x", scheme, LONG) == f"line 0\n[6 of {len(LONG)} characters]"
    assert len(summarize(f"{scheme}://x", scheme, "y" * 1000).split("\n")[0]) == RECORD_CHARS


# RU063
@settings(deadline=None)
@given(scheme=st.sampled_from(SCHEMES), body=st.text(max_size=80).map(lambda text: text * 12))
def test_no_summary_is_longer_than_its_body(scheme, body):
    assert len(summarize("a.md", scheme, body)) <= len(body)


def test_a_large_file_is_read_only_at_its_beginning():
    body = "x" * 100_000 + "\ndef late(): pass\n"
    assert "late" not in summarize("a.py", "", body)
