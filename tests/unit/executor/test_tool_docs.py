"""The texts that the model reads about tools. Rows RU256, RU257, RU259."""

import itertools
import re
from importlib.resources import files

import pytest

from turnwright_core.tools import TOOL_ORDER
from turnwright_executor.tools.registry import doc_of, is_rationale, texts_of
from turnwright_grammar.reader.parser import read_reply

from .bench import TOOLS

KEYWORD = re.compile(r"^\* .*\bYOU (MUST|MUST NOT|SHOULD|SHOULD NOT|MAY)\b")
WORDS_MAX = 260


def examples(name: str) -> str:
    """What stands between the header and the first bullet."""
    return doc_of(name).split("\n", 1)[1].split("\n* ", 1)[0].strip()


@pytest.mark.parametrize("name", TOOL_ORDER)
def test_a_text_has_a_header_with_the_syntax(name):
    assert re.match(rf"## <{name}[ >].* - \S", doc_of(name))


@pytest.mark.parametrize("name", TOOL_ORDER)
def test_a_text_has_two_or_more_examples_that_the_reader_understands(name):
    reply = read_reply(examples(name), known_tools=frozenset(TOOL_ORDER))
    assert [command.name for command in reply.commands] == [name] * len(reply.commands)
    assert len(reply.commands) >= 2
    assert not reply.warnings
    assert not reply.narration.strip()


@pytest.mark.parametrize("name", TOOL_ORDER)
def test_the_examples_go_from_simple_to_powerful(name):
    commands = read_reply(examples(name), known_tools=frozenset(TOOL_ORDER)).commands
    lengths = [command.span[1] - command.span[0] for command in commands]
    assert lengths[0] < max(lengths)


@pytest.mark.parametrize("name", TOOL_ORDER)
def test_a_text_has_two_or_more_bullets_with_keywords(name):
    bullets = [line for line in doc_of(name).splitlines() if KEYWORD.match(line)]
    assert len(bullets) >= 2


@pytest.mark.parametrize("name", TOOL_ORDER)
def test_each_line_has_its_reason_which_no_model_reads(name):
    """RU257: the header's is that of the examples."""
    lines = files("turnwright_executor.tools").joinpath(f"{name}.md").read_text("utf-8").splitlines()
    reasons = [line for line in lines if is_rationale(line)]
    explained = [above for above, line in itertools.pairwise(lines) if is_rationale(line)]
    assert explained == [line for line in lines if line.startswith(("## ", "* "))]
    assert all(len(reason.split()) > 5 for reason in reasons)
    assert doc_of(name).splitlines() == [line for line in lines if line not in reasons]
    assert "<!--" not in doc_of(name)


@pytest.mark.parametrize("name", TOOL_ORDER)
def test_a_text_is_short(name):
    assert len(doc_of(name).split()) <= WORDS_MAX


@pytest.mark.parametrize("name", TOOL_ORDER)
def test_a_brief_text_has_the_syntax_the_examples_and_the_bullets_that_cannot_be_spared(name):
    """RU256 holds for small windows too."""
    brief = doc_of(name, is_brief=True)
    spared = [line for line in doc_of(name).splitlines() if line not in brief.splitlines()]
    assert examples(name) in brief
    assert all(line.startswith("* ") for line in spared)
    assert len([line for line in brief.splitlines() if KEYWORD.match(line)]) >= 2
    assert "spare" not in brief


def test_brief_texts_take_less_room():
    whole, brief = (sum(map(len, texts_of(TOOLS, is_brief=is_brief).values())) for is_brief in (False, True))
    assert brief < 0.85 * whole


def test_patterns_are_taught_across_tools():
    assert '<get path="known://*">' in doc_of("get")
    assert '<cp path="known://plan_*"' in doc_of("cp")
    assert re.search(r'<rm path="known://temp_\*" manifest/>', doc_of("rm"))


def test_the_text_of_update_explains_the_statuses_as_its_schema_does():
    status, _ = TOOLS["update"].parameters
    assert f"* {status.about}" in doc_of("update").splitlines()
    assert f'<update status="[{"|".join(status.words)}]">' in doc_of("update")


def test_texts_come_in_the_order_in_which_they_are_asked_for():
    assert list(texts_of({name: TOOLS[name] for name in ("update", "get")})) == ["update", "get"]


def test_a_name_that_is_no_tool_has_no_handler():
    assert TOOLS["get"].name == "get"
    assert "frobnicate" not in TOOLS
