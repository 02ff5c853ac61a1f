"""The text of a project's instructions: order, equal texts, limits."""

from hypothesis import given
from hypothesis import strategies as st

from turnwright_executor.domain.project_instructions import (
    BYTES_MAX,
    BYTES_MIN,
    InstructionFile,
    bytes_max,
    project_instructions,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=300)


def made(*texts: str, most: int = BYTES_MAX):
    names = ("AGENTS.md", "CLAUDE.md")
    files = [InstructionFile(name, text, str(hash(text))) for name, text in zip(names, texts, strict=False)]
    return project_instructions(files, most)


def test_files_stand_in_their_order_and_equal_ones_once():
    assert made("a\n", "b\n").text == "AGENTS.md:\n\na\n\nCLAUDE.md:\n\nb"
    assert [file.path for file in made("same\n", "same\n").files] == ["AGENTS.md"]
    assert made("\n", " ") is None
    assert made() is None


def test_what_was_not_read_is_noted_and_shows_nothing():
    found = project_instructions([InstructionFile("AGENTS.md", problem="It is elsewhere.")], BYTES_MAX)
    assert (found.text, found.attributes) == ("", {"files": [{"path": "AGENTS.md", "problem": "It is elsewhere."}]})


def test_a_window_gives_an_eighth_of_itself_within_bounds():
    assert [bytes_max(tokens, 2) for tokens in (1, 8192, 32_768, 10**6)] == [BYTES_MIN, 2048, 8192, BYTES_MAX]


def test_a_long_line_is_shown_as_far_as_it_fits_with_a_mark():
    for before in ("", "# Title\n", "one\ntwo\n\n"):
        found = made(before + "x" * 160_000 + "\nend\n", most=2000)
        assert found.files[0].shown == 2000
        assert found.text.count("x") >= 1900
        assert "[the first 2000 of" in found.text
    # Of lines that are all short none is cut.
    assert made("word\n" * 1000, most=998).files[0].shown == 995


@given(TEXTS, TEXTS, st.integers(0, 400))
def test_the_limit_holds_for_all_files_together_and_nothing_is_split(first, second, most):
    found = made(first, second, most=most)
    if found is None:
        return
    assert sum(file.shown for file in found.files) <= most
    for file in found.files:
        text = {"AGENTS.md": first, "CLAUDE.md": second}[file.path].encode()
        assert (file.bytes, text[: file.shown].decode().encode()) == (len(text), text[: file.shown])
        assert (f"of {file.bytes} bytes" in found.text) or file.shown == file.bytes
