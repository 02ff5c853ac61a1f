import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turnwright_values.types import State, Visibility

from cases import load_cases
from turnwright_assembler.domain.blocks import active_prompt, make_block, stands_in_packet, summarized
from turnwright_core.schemes import BUILT_IN
from turnwright_core.text import scheme_of
from unit.assembler.entries import DIVISOR, block, blocks, entry
from unit.assembler.packet_reader import read_packet

CASES = load_cases("rummy/visibility_rules.jsonl")


# RU063, RU066, RU068-RU071, RU078, RU079, RU086, RU187
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_visibility_and_scheme_decide_what_stands_in_a_packet(case):
    given_, expected = case["input"], case["expected"]
    one = entry(
        given_["path"],
        given_["body"],
        visibility=Visibility[given_["visibility"].upper()],
        state=State[given_["state"].upper()],
    )
    assert stands_in_packet(one, BUILT_IN.rules(one.scheme)) is expected["in_context"]
    if "category" in expected:
        assert BUILT_IN.rules(scheme_of(given_["path"]) or "").category == expected["category"]
    if "blocks" in expected:
        made = make_block(one, DIVISOR)
        assert made
        assert (made.whole, bool(made.condensed)) == ("", expected["blocks"] == ["summary"])


# RU200
@pytest.mark.parametrize("state", list(State)[1:])
def test_only_a_proposal_is_hidden_by_its_state(state):
    record = entry("log://turn_1/set/x", state=state)
    assert stands_in_packet(record, BUILT_IN.rules("log")) is (state is not State.PROPOSED)


# RU074, RU078, RU079, RU086
@pytest.mark.parametrize(
    "scheme", ["tool", "instructions", "system", "reasoning", "model", "user", "assistant", "content", "run"]
)
def test_audit_is_never_shown(scheme):
    assert make_block(entry(f"{scheme}://1"), DIVISOR) is None


# RU066, RU067
@pytest.mark.parametrize(
    ("path", "tag"),
    [
        ("src/a.py", "file"), ("known://a", "known"), ("skill://a", "skill"), ("http://a", "http"),
        ("https://a", "https"), ("sh://turn_1/a_1", "sh"), ("env://turn_1/a_1", "env"), ("unknown://a", "unknown"),
        ("update://a", "update"), ("error://a", "error"), ("mine://a", "mine"), ("prompt://1", "prompt"),
    ],
)  # fmt: skip
def test_an_entry_stands_under_the_tag_of_its_scheme(path, tag):
    [node] = read_packet(block(path).condensed)
    assert (node.name, node.attributes["path"], node.body or node.order) == (tag, path, "body")


def test_a_record_is_named_by_its_tool():
    made = block("log://turn_2/get/a", "", tool="get", target="a.py", state=State.FAILED, outcome="not_found:404")
    assert made.text == (
        '<get path="log://turn_2/get/a" target="a.py" status="404" outcome="not_found:404" tokens="0"/>\n'
    )


# RU177
@pytest.mark.parametrize("visibility", [Visibility.VISIBLE, Visibility.SUMMARIZED])
def test_a_streaming_entry_shows_102(visibility):
    made = block("sh://turn_1/a_1", state=State.STREAMING, visibility=visibility, summary="make test")
    assert 'status="102" summary="make test"' in made.condensed
    assert 'status="102"' in summarized(made).condensed


# RU203
def test_a_summary_attribute_is_shown_whatever_the_visibility():
    for visibility in (Visibility.VISIBLE, Visibility.SUMMARIZED):
        assert ' summary="the entry point"' in block("a.py", visibility=visibility, summary="the entry point").condensed
    assert f' summary="{"s" * 80}"' in block("a.py", summary="s" * 100).condensed


# RU185: the condensed block of a data entry is the same while its visibility changes.
def test_promotion_leaves_the_summary_block_byte_equal():
    shown, hidden = (block("a.py", "x\n" * 900, visibility=v) for v in (Visibility.VISIBLE, Visibility.SUMMARIZED))
    assert shown.condensed == hidden.condensed
    assert summarized(shown) == hidden


BODIES = st.text(max_size=30).flatmap(lambda text: st.integers(0, 120).map(lambda times: text * times))


# RU207, C15: the figure of a data entry counts its second block, the figure itself included.
@settings(deadline=None)
@given(body=BODIES, divisor=st.integers(1, 5))
def test_the_figure_of_data_is_what_its_second_block_takes(body, divisor):
    made = make_block(entry("known://a", body), divisor)
    assert made
    assert made.a_tokens == -(-len(made.whole) // divisor)
    assert f' tokens="{made.a_tokens}"' in made.whole.split("\n")[0]
    assert f' tokens="{made.a_tokens}"' in made.condensed.split("\n")[0]


# RU206, RU207
@settings(deadline=None)
@given(body=BODIES, path=st.sampled_from(["log://turn_1/get/a", "unknown://a", "prompt://1"]))
def test_the_figure_of_other_entries_is_what_condensing_them_frees(body, path):
    made = block(path, body)
    assert made.a_tokens == -(-(len(made.whole) - len(made.condensed)) // DIVISOR)


def test_the_body_of_a_summarized_entry_is_not_kept():
    made = block("a.py", "x" * 10_000, visibility=Visibility.SUMMARIZED)
    assert (made.whole, len(made.condensed) < 700, made.a_tokens > 5000) == ("", True, True)


# RU195
def test_the_active_prompt_is_the_loops_own():
    rows = blocks(
        entry("prompt://1", loop=1, position=1, mode="ask"),
        entry("prompt://4", loop=2, position=9, mode="act"),
    )
    assert [active_prompt(rows, loop) and active_prompt(rows, loop).path for loop in (1, 2, 3)] == [
        "prompt://1", "prompt://4", None,
    ]  # fmt: skip
