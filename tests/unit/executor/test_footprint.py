"""What a turn may bring is never counted as less than the packet grows by. Row RU142."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st
from turnwright_values.store import AppendEntry, EntryWrite, RemoveEntry, SetEntry
from turnwright_values.types import Entry, State, Tier, Visibility

from turnwright_assembler.app.packet import compose
from turnwright_assembler.domain.blocks import make_block
from turnwright_core.text import scheme_of
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.footprint import SLACK_CHARS, Footprint, room_chars

SCHEMES = ("", "known://", "unknown://", "log://turn_2/get/", "sh://turn_2/", "event://turn_2/tick/")
TEXTS = st.text(st.sampled_from('ab\n<&>"\u2028:é'), max_size=900)
ATTRIBUTES = st.fixed_dictionaries({}, optional={"target": TEXTS, "summary": TEXTS, "tool": st.just("get")})
LEAVES = TEXTS | st.sampled_from([1e15, -1e-7, 10**30, None])
PAYLOADS = LEAVES | st.lists(LEAVES | st.lists(LEAVES, max_size=2), max_size=3)
EVENTS = st.fixed_dictionaries(
    {"event": st.fixed_dictionaries({"subkind": st.just("tick"), "source": TEXTS, "payload": PAYLOADS})}
)
VISIBILITIES = st.sampled_from(list(Visibility))


@st.composite
def changes(draw):
    path = draw(st.sampled_from(SCHEMES)) + draw(st.text(st.sampled_from('ab"<&'), min_size=1, max_size=40))
    given_ = draw(EVENTS if path.startswith("event://") else ATTRIBUTES)
    return path, draw(TEXTS), given_, draw(VISIBILITIES)


def row(path, body, attributes, visibility, position):
    return Entry(
        path=path, scheme=scheme_of(path) or "", scope="run:1", body=body, body_size_bytes=len(body.encode()),
        attributes_json=to_attributes_json(attributes), visibility=visibility, state=State.RESOLVED, outcome="",
        writer=Tier.PLUGIN, turn=2, loop=1, position=position, write_count=1, revision=1, hash="", update_ms=0,
    )  # fmt: skip


def packet(entries, divisor=2):
    blocks = (make_block(entry, divisor) for entry in entries)
    return compose(tuple(block for block in blocks if block), "system", 1, 50_000, divisor)


def chars(made):
    return len(made.system) + len(made.user)


def shown(path, body, attributes, visibility, position):
    """A new entry is shown unless a write says otherwise."""
    is_default = visibility is Visibility.UNSPECIFIED
    return row(path, body, attributes, Visibility.VISIBLE if is_default else visibility, position)


@given(st.lists(changes(), max_size=6, unique_by=lambda change: change[0]), st.integers(1, 4))
def test_a_packet_grows_by_no_more_than_the_footprint(written, divisor):
    footprint = Footprint()
    footprint.wrote(
        EntryWrite(path, SetEntry(body, to_attributes_json(attributes), visibility=visibility), Tier.PLUGIN)
        for path, body, attributes, visibility in written
    )
    before = packet([row("prompt://1", "Do it.", {"mode": "act"}, Visibility.VISIBLE, 1)], divisor)
    rows = [shown(*change, position) for position, change in enumerate(written, 2)]
    after = packet([row("prompt://1", "Do it.", {"mode": "act"}, Visibility.VISIBLE, 1), *rows], divisor)
    assert chars(after) - chars(before) <= footprint.chars
    room = room_chars(before.tokens, chars(before), after.tokens - 1, 1.0)
    assert footprint.chars > room


@given(changes())
def test_an_entry_that_is_only_shown_counts_with_what_was_read_of_it(change):
    path, body, attributes, _ = change
    footprint = Footprint()
    footprint.read([row(path, body, attributes, Visibility.ARCHIVED, 2)])
    footprint.wrote([EntryWrite(path, SetEntry(visibility=Visibility.VISIBLE), Tier.PLUGIN)])
    before, after = packet([]), packet([row(path, body, attributes, Visibility.VISIBLE, 2)])
    assert chars(after) - chars(before) <= footprint.chars
    assert (footprint.chars < inf) is not path.startswith("event://")


def test_what_nobody_read_counts_without_end_once_it_is_shown():
    footprint = Footprint()
    footprint.wrote([EntryWrite("a.txt", SetEntry(visibility=Visibility.ARCHIVED), Tier.PLUGIN)])
    assert footprint.chars < inf
    footprint.wrote([EntryWrite("a.txt", SetEntry(visibility=Visibility.VISIBLE), Tier.PLUGIN)])
    assert footprint.chars == inf


def test_output_counts_by_its_pieces_once_it_is_shown():
    footprint, path = Footprint(), "sh://turn_1/ls_1"
    footprint.wrote([EntryWrite(path, SetEntry("", "{}", visibility=Visibility.SUMMARIZED), Tier.PLUGIN)])
    footprint.wrote(EntryWrite(path, AppendEntry("x" * 10_000), Tier.PLUGIN) for _ in range(3))
    hidden = footprint.chars
    footprint.wrote([EntryWrite(path, SetEntry(state=State.FAILED, visibility=Visibility.VISIBLE), Tier.PLUGIN)])
    assert (hidden < 5_000, footprint.chars - hidden) == (True, 30_000)


def test_what_was_removed_brings_nothing():
    footprint = Footprint()
    footprint.wrote([EntryWrite("known://a", SetEntry("x" * 999, "{}"), Tier.PLUGIN)])
    footprint.wrote([EntryWrite("known://a", RemoveEntry(), Tier.PLUGIN)])
    assert footprint.chars == SLACK_CHARS


def test_what_somebody_else_brought_counts_without_end():
    footprint = Footprint()
    footprint.mark_unknown()
    assert footprint.chars == inf


def test_the_room_of_a_packet_shrinks_with_what_the_vendor_counts():
    assert room_chars(1_000, 2_000, 10_001, 0.0) == room_chars(1_000, 2_000, 10_001, 1.0) == 2 * (10_000 - 1_000 - 2)
    assert room_chars(1_000, 2_000, 10_001, 2.0) == 2 * (5_000 - 1_000 - 2)
    assert room_chars(1_000, 2_000, 0, 1.0) is None
