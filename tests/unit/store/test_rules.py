"""Small rules: enums that are those of the contract, names, pages, cuts."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import view_pb2
from turnwright_values.store import Durability
from turnwright_values.types import ViewFilter

from turnwright_core.batching import split_by_weight
from turnwright_core.limits import NAME_CHARS_MAX
from turnwright_store.domain.checks import NAME, RUN_ALIAS
from turnwright_store.domain.names import project_names, run_aliases
from turnwright_store.domain.pages import decode_page_token, encode_page_token, page_of
from turnwright_store.sql.contents import cut


@pytest.mark.parametrize(
    ("ours", "theirs", "prefix"),
    [(ViewFilter, view_pb2.ViewFilter, "VIEW_FILTER_"), (Durability, write_pb2.Durability, "DURABILITY_")],
    ids=["filter", "durability"],
)
def test_an_enum_has_the_numbers_of_the_contract(ours, theirs, prefix):
    named = {name.removeprefix(prefix): number for name, number in theirs.items()}
    assert {one.name: one.value for one in ours} == named


@given(st.text(), st.integers(0, 2**45))
def test_made_names_are_valid_and_different(text, now_ms):
    aliases = list(islice(run_aliases(text, now_ms), 3))
    names = list(islice(project_names(f"/{text}"), 3))
    assert all(RUN_ALIAS.fullmatch(alias) and len(alias) <= NAME_CHARS_MAX for alias in aliases)
    assert all(NAME.fullmatch(name) for name in names)
    assert (len(set(aliases)), len(set(names))) == (3, 3)


@given(st.text(), st.integers(0, 40))
def test_a_cut_is_the_longest_beginning_that_fits(text, limit):
    short = cut(text, limit)
    assert text.startswith(short)
    assert len(short.encode()) <= limit or short == text
    if short != text:
        assert len(text[: len(short) + 1].encode()) > limit


@given(st.lists(st.integers(0, 400_000)))
def test_parts_join_to_the_whole(weights):
    parts = list(split_by_weight(weights, lambda weight: weight))
    assert [weight for part in parts for weight in part] == weights
    assert all(part and (len(part) == 1 or sum(part) <= 256 * 1024) for part in parts)


@given(st.integers(0, 20), st.integers(1, 20))
def test_pages_join_to_the_whole(count, size):
    items, seen, token = list(range(count)), [], ""
    while True:
        (after,) = decode_page_token(token, int) or (-1,)
        page, token = page_of((item for item in items if item > after), size, lambda item: (item,))
        assert len(page) <= size
        seen += page
        if not token:
            break
    assert seen == items


def test_a_token_says_nothing_readable():
    assert "secret" not in encode_page_token(("secret/path",))
    assert decode_page_token(encode_page_token(("a", 1)), str, int) == ("a", 1)
