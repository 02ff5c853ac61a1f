"""Which events leave a packet. Row RH03; decision C47."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turnwright_values.store import SetEntry
from turnwright_values.types import State, Tier, Visibility

from cases import NEEDS_SHARED, load_cases
from turnwright_assembler.domain.blocks import make_block
from turnwright_assembler.domain.folding import (
    EVENTS_KEPT,
    PATHS_CHARS_MAX,
    PATHS_NAMED_MAX,
    SHARE,
    TICK_TURNS,
    Folded,
    fold,
)
from turnwright_core.schemes import BY_NAME
from unit.assembler.entries import DIVISOR, blocks, entry

ARCHIVED = Visibility.ARCHIVED
SUBKINDS = [
    "mode_switch", "tool_decision", "ide_callback", "process_completed", "cron_fire", "tick", "summarization_marker",
    "verifier_report", "cancellation_note", "system_notice", "plan_delta",
]  # fmt: skip
FOLDING = {"process_completed", "cron_fire", "mode_switch", "tick"}


def event(n, subkind="process_completed", source="exec:build", turn=1, slug=""):
    told = {"subkind": subkind, "source": source, "payload": {}}
    return entry(f"event://turn_{turn}/{subkind}/{slug or n}", f"e{n}", event=told, turn=turn, position=n)


def folded(*entries, turn=1, ceiling=10**6):
    made = blocks(*entries)
    found = fold(lambda: made, made, turn, 1, ceiling, DIVISOR, {each.path for each in made})
    return found or Folded(made, (), frozenset(), None)


def shown(found):
    """The messages of the events that stay, without the marker."""
    marker = found.marker.path if found.marker else ""
    return [block.path.rpartition("/")[2] for block in found.blocks if block.path != marker]


def payload(found):
    return json.loads(found.marker.attributes_json)["event"]["payload"]


def after(entries, found):
    """The entries as they are once the writes are committed."""
    left = [one for one in entries if one.path not in found.gone and one.path != (found.marker and found.marker.path)]
    return [*left, found.marker] if found.marker else left


def test_the_newest_of_each_source_stay_and_one_marker_stands_for_the_rest():
    rows = [event(n, source=source) for n, source in enumerate("aaaabaabb", 1)]
    found = folded(*rows, entry("known://a", position=50))
    assert shown(found) == ["4", "5", "6", "7", "8", "9", "a"]
    assert payload(found) == {
        "count": 3,
        "subkinds": {"process_completed": 3},
        "paths": [f"event://turn_1/process_completed/{n}" for n in (1, 2, 3)],
    }
    *archived, marker = found.writes
    assert [(write.path, write.change, write.writer) for write in archived] == [
        (path, SetEntry(visibility=ARCHIVED), Tier.PLUGIN) for path in payload(found)["paths"]
    ]
    assert (marker.path, marker.change.body, marker.change.state, marker.turn) == (
        "event://turn_1/summarization_marker/folded", "3 earlier events are archived.", State.RESOLVED, 1,
    )  # fmt: skip
    assert found.blocks[-1].path == marker.path
    assert all(write.writer in BY_NAME["event"].writable_by for write in found.writes)


def test_sources_of_different_subkinds_are_different_sources():
    rows = [event(n, ("process_completed", "cron_fire")[n % 2]) for n in range(1, 7)]
    assert folded(*rows).writes == ()


def test_only_the_newest_switch_of_mode_stays():
    rows = [event(n, "mode_switch", f"source {n}") for n in range(1, 5)]
    assert shown(folded(*rows)) == ["4"]
    assert folded(rows[0], turn=1000).writes == ()


def test_a_tick_stands_for_some_turns():
    rows = [event(n, "tick", turn=n) for n in range(1, 9)]
    found = folded(*rows, turn=8)
    assert shown(found) == [str(n) for n in range(9 - TICK_TURNS, 9)]
    assert payload(found)["subkinds"] == {"tick": 8 - TICK_TURNS}


@pytest.mark.parametrize("subkind", sorted(set(SUBKINDS) - FOLDING))
def test_every_other_event_is_an_anchor(subkind):
    rows = [event(n, subkind) for n in range(1, 20)]
    found = folded(*rows, turn=1000)
    assert (found.writes, found.gone, len(found.blocks)) == ((), frozenset(), 0 if subkind == "plan_delta" else 19)


def cost(*entries):
    return sum(block.s_tokens for block in blocks(*entries))


@pytest.mark.parametrize("subkind", sorted(set(SUBKINDS) - FOLDING - {"plan_delta"}))
def test_anchors_leave_where_events_take_more_than_their_share(subkind):
    rows = [event(n, subkind) for n in range(100, 140)]
    room = cost(*rows)
    assert folded(*rows, ceiling=SHARE * room).writes == ()
    found = folded(*rows, ceiling=SHARE * (room - 1))
    stay = shown(found)
    assert stay == [str(n) for n in range(140 - len(stay), 140)]
    assert cost(*rows[-len(stay) :]) <= (room - 1) // 2 < cost(*rows[-len(stay) - 1 :])
    assert payload(found)["subkinds"] == {subkind: 40 - len(stay)}
    again = folded(*after(rows, found), ceiling=SHARE * (room - 1))
    assert (again.writes, again.blocks) == ((), found.blocks)


def test_the_newest_switch_of_mode_stays_whatever_events_take():
    rows = [event(1, "mode_switch"), *(event(n, "system_notice") for n in range(2, 20))]
    assert shown(folded(*rows, ceiling=SHARE)) == ["1"]


def test_one_event_that_takes_more_than_all_may_leaves():
    rows = [event(1, "system_notice"), event(2, "tool_decision", source="x" * 4000)]
    found = folded(*rows, ceiling=SHARE * 1000)
    assert payload(found)["paths"] == [one.path for one in rows]
    assert found.blocks[-1].path == found.marker.path


def test_an_event_that_was_got_back_is_counted_once_however_often_it_leaves():
    rows = [event(n, "system_notice") for n in range(1, 9)]
    ceiling = SHARE * (cost(*rows) - 1)
    first = folded(*rows, ceiling=ceiling)
    again = folded(*rows, first.marker, ceiling=ceiling)
    assert payload(again)["count"] == payload(first)["count"] < 8
    assert shown(again) == shown(first)


def test_ten_thousand_events_leave_at_once():
    rows = [event(n, "tool_decision", source=str(n)) for n in range(10_000)]
    found = folded(*rows, ceiling=4000)
    assert payload(found)["count"] + len(shown(found)) == 10_000
    assert cost(*(row for row in rows if row.path not in found.gone)) <= 500


def test_what_is_committed_is_not_folded_again():
    rows = [event(n) for n in range(1, 8)]
    first = folded(*rows)
    again = folded(*after(rows, first))
    assert (again.writes, again.blocks) == ((), first.blocks)
    assert folded(*rows) == first


def test_a_marker_counts_on_in_the_next_one():
    rows = [event(n) for n in range(1, 5)]
    first = folded(*rows)
    rows = [*after(rows, first), event(9, turn=2), event(10, "tick", turn=2)]
    second = folded(*rows, turn=2)
    assert payload(second)["count"] == 2
    assert {write.path for write in second.writes} == {
        "event://turn_1/summarization_marker/folded",
        "event://turn_1/process_completed/2",
        "event://turn_2/summarization_marker/folded",
    }
    third = folded(*after(rows, second), turn=9)
    assert payload(third)["subkinds"] == {"process_completed": 2, "tick": 1}
    assert [block.event.subkind for block in third.blocks].count("summarization_marker") == 1


def test_a_turn_that_folds_twice_has_one_marker():
    rows = [event(n) for n in range(1, 5)]
    rows = [*after(rows, folded(*rows)), event(9)]
    found = folded(*rows)
    assert (payload(found)["count"], len(found.writes)) == (2, 2)
    assert [block.position for block in found.blocks] == [3, 4, 5, 9]


def test_an_event_that_is_brought_back_stays():
    rows = [event(n) for n in range(1, 8)]
    first = folded(*rows)
    found = folded(*after(rows, first), rows[1])
    assert (found.writes, shown(found)[0]) == ((), "2")


def test_markers_of_others_stay_and_one_of_ours_that_says_nonsense_counts_nothing():
    other = event(1, "summarization_marker", "compressor")
    said = {
        "subkind": "summarization_marker",
        "source": "assembler",
        "payload": {"subkinds": {"tick": "x"}, "paths": 7},
    }
    broken = entry("event://turn_1/summarization_marker/folded+2", "?", event=said, position=2)
    found = folded(other, broken, *(event(n) for n in range(3, 7)))
    assert (payload(found)["count"], shown(found)[0]) == (1, "1")
    assert broken.path in found.gone


def test_a_marker_has_another_name_where_its_own_is_taken():
    foreign = event(1, "summarization_marker", "compressor", slug="folded")
    found = folded(foreign, *(event(n) for n in range(2, 6)))
    assert found.marker.path == "event://turn_1/summarization_marker/folded+2"


def test_a_marker_is_bounded():
    rows = [event(n, slug=f"{n}-{'x' * 300}") for n in range(1, 500)]
    found = folded(*rows)
    assert payload(found)["count"] == 499 - EVENTS_KEPT
    assert sum(map(len, payload(found)["paths"])) <= PATHS_CHARS_MAX
    assert payload(found)["paths"][-1].startswith("event://turn_1/process_completed/496-")
    short = folded(*(event(n) for n in range(1, 500)))
    assert len(payload(short)["paths"]) == PATHS_NAMED_MAX
    assert len(short.blocks[-1].text) < 2 * PATHS_CHARS_MAX


def test_a_run_without_events_is_left_as_it_is():
    made = blocks(entry("known://a"), entry("plan://main"))
    assert fold(lambda: made, made, 9, 1, 10**6, DIVISOR, ()) is None


EVENTS = st.lists(
    st.tuples(st.sampled_from(SUBKINDS), st.sampled_from(["a", "b"]), st.integers(1, 9)), min_size=1, max_size=25
)


@settings(deadline=None)
@given(told=EVENTS, cuts=st.lists(st.integers(1, 25), max_size=3))
def test_however_often_a_run_folds_what_stays_is_the_same(told, cuts):
    """Folding after each part gives what folding all at once gives, and each event is counted once."""
    turns = sorted(turn for _, _, turn in told)
    rows = [event(n, kind, source, turns[n - 1]) for n, (kind, source, _) in enumerate(told, 1)]
    whole = folded(*rows, turn=9)
    kept: list = []
    count = done = 0
    for cut in (*sorted(cuts), len(rows)):
        kept += rows[done:cut]
        done = max(done, min(cut, len(rows)))
        found = folded(*kept, turn=9)
        if found.marker:
            kept = after(kept, found)
            count = payload(found)["count"]
    ours = {block.path for block in whole.blocks} - {whole.marker.path if whole.marker else ""}
    assert {one.path for one in kept if "folded" not in one.path} >= ours
    assert {block.path for block in folded(*kept, turn=9).blocks if "folded" not in block.path} == ours
    assert count == (payload(whole)["count"] if whole.marker else 0)


# The known compression ------------------------------------------------------------------------------------------------

CASES = load_cases("refact/compression.jsonl")
EXEMPTIONS = [case for case in CASES if case["id"].startswith("exemption/")]
OURS = {
    "exemption/event_tool_decision": "an anchor here: RH03 keeps all subkinds but four",
    "exemption/event_verifier_report": "an anchor here: RH03 keeps all subkinds but four",
    "tier0/preserve_window": "tool_decision is an anchor here",
    "tier0/drop_on_age_keeps_latest_mode_switch": "age is counted in turns, so that a tick of this turn stays",
    "tier0/keep_recent_n_maximum": "the newest three stay whatever the pressure; one marker for all sources",
}
"""Cases whose form differs on purpose."""


NOT_OURS = (
    *("pressure/", "token_estimate/", "auto_cap/", "provider_pressure/", "legacy_"),
    *("content_duplicate/", "dedup_context_files/", "history_fix/", "segments/"),
    *("tier0/dedup_keeps_last", "tier0/aggressive_elides_context_file"),
)
"""Cases of a history of messages, of its summaries and estimates: packets are made of entries, which the ladder demotes."""


@NEEDS_SHARED
def test_every_case_of_compression_is_run_or_named():
    run = {case["id"] for case in (*EXEMPTIONS, *TIERS)}
    assert [case["id"] for case in CASES if case["id"] not in run and not case["id"].startswith(NOT_OURS)] == []
    assert [name for name in run if name.startswith(NOT_OURS)] == []
    assert OURS.keys() < run


def exemption(message):
    """What happens to one of many messages like this, when it is old."""
    told = message.get("event")
    if message["role"] == "plan":
        return "Never"
    if message["role"] != "event" or not told:
        return "PreserveAnchor"
    if told["subkind"].endswith("_delta"):
        return "Never"
    rows = [event(n, told["subkind"]) for n in range(1, 9)]
    left = len(shown(folded(*rows, turn=1000)))
    return {8: "PreserveAnchor", EVENTS_KEPT: "KeepRecentN"}.get(left, "DropOnAge")


@pytest.mark.parametrize("case", EXEMPTIONS, ids=lambda case: case["id"])
def test_what_is_exempt_is_known(case):
    ours = exemption(case["input"]["message"])
    assert (ours == case["expected"]) is (case["id"] not in OURS)
    if case["id"] in OURS:
        assert ours == "PreserveAnchor"


TIERS = [case for case in CASES if case["id"].startswith("tier0/") and "event" in json.dumps(case["input"])]


@pytest.mark.parametrize("case", TIERS, ids=lambda case: case["id"])
def test_a_known_history_is_folded(case):
    """Each message is a turn of its own; where theirs keeps other texts it is listed."""
    rows = [
        entry(f"event://turn_{n}/x/{n}", message["content"], event=message["event"], turn=n, position=n)
        for n, message in enumerate(case["input"]["messages"], 1)
        if message["role"] == "event"
    ]
    found = folded(*rows, turn=len(case["input"]["messages"]))
    bodies = {one.path: one.body for one in rows}
    kept = [bodies[block.path] for block in found.blocks if block.path in bodies]
    assert (kept == case["expected"]["kept_texts"]) is (case["id"] not in OURS)
    assert kept[-len(case["expected"]["kept_texts"]) :] == case["expected"]["kept_texts"]
    if "marker" in case["expected"]:
        assert found.marker.body.startswith("2 earlier")


def test_a_marker_reads_as_an_event():
    found = folded(*(event(n) for n in range(1, 5)))
    made = make_block(found.marker, DIVISOR)
    assert made == found.blocks[-1]
