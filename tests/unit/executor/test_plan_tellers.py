"""What the watches of a run are told of its plans, whatever each of them was told before. Rows AP23, AP25, AP43."""

from __future__ import annotations

from turnwright.executor.v1 import event_pb2, session_event_pb2
from turnwright.executor.v1.executor_service_pb2 import EventBatch, WatchRunResponse
from turnwright.types.v1 import cursor_pb2, entry_pb2
from turnwright_values.types import PlanDelta, PlanKind

from turnwright_core.plans.plan import Plan
from turnwright_core.wire.plans import item_to_pb, plan_to_pb
from turnwright_executor.watching.plans import FedPlan, FedPlans, LegacyTeller, OperationsTeller, legacy_items


def kept(plan_id, body="x", version=1, deltas=0) -> FedPlan:
    plan = Plan(
        plan_id, PlanKind.MARKDOWN, body, version, deltas=tuple(PlanDelta(one + 1, "d", 0) for one in range(deltas))
    )
    return FedPlan(plan, plan_to_pb(plan), tuple(map(item_to_pb, legacy_items(plan))))


def entries(**positions):
    return {f"plan://{name}": entry_pb2.Entry(path=f"plan://{name}", position=at) for name, at in positions.items()}


def run_with(*plans, **positions) -> FedPlans:
    return FedPlans(entries(**positions), {one.value.plan_id: one for one in plans})


AT = cursor_pb2.EventCursor(epoch="e", seq=5)


def added(path, seq=5):
    cursor = cursor_pb2.EventCursor(epoch="e", seq=seq)
    return WatchRunResponse(cursor=cursor, message_added=event_pb2.MessageAdded(entry=entry_pb2.Entry(path=path)))


def updated(path):
    return WatchRunResponse(cursor=AT, message_updated=event_pb2.MessageUpdated(entry=entry_pb2.Entry(path=path)))


def removed(*paths):
    if len(paths) == 1:
        return WatchRunResponse(cursor=AT, message_removed=event_pb2.MessageRemoved(path=paths[0]))
    return WatchRunResponse(cursor=AT, messages_truncated=session_event_pb2.MessagesTruncated(paths=paths))


def told(teller, *events):
    """What comes before these events, in short."""
    found = []
    for event in teller.insert(events, batched=False):
        match event.WhichOneof("event"):
            case "plan_updated":
                plan = event.plan_updated
                found.append((plan.plan_id, plan.version, len(plan.deltas)))
            case "plan_removed":
                found.append(event.plan_removed)
            case "legacy_plan":
                found.append(list(event.legacy_plan.texts))
    return found


def test_a_plan_moves_with_its_entry_and_with_what_is_added_to_it_and_with_nothing_else() -> None:
    plans = run_with(kept("main"), main=3)
    teller = OperationsTeller(plans)
    assert told(teller, added("plan://main/v1"), added("known://plan"), updated("known://plan")) == []
    assert told(teller, added("plan://main"), updated("plan://main")) == [("main", 1, 0)]
    plans.known["main"] = kept("main", deltas=1)
    assert told(teller, added("plan://main/v1/1"), updated("plan://main/v1/1")) == [("main", 1, 1)]
    plans.known["main"] = kept("main")
    assert told(teller, removed("plan://main/v1"), removed("plan://main/v1/1")) == [("main", 1, 0)]
    del plans.known["main"]
    assert told(teller, removed("plan://main"), removed("plan://main/v1/1")) == ["main"]


def test_plans_stand_in_the_order_of_their_positions_and_one_that_came_again_was_away() -> None:
    plans = run_with(kept("a"), kept("b"), kept("early"), b=7, a=8)
    teller = OperationsTeller(plans)
    # One whose entry is not published yet is none.
    assert [plan.plan_id for plan in teller.begin().plans] == ["b", "a"]
    plans.entries = entries(b=11, a=8)
    assert told(teller, updated("plan://b")) == ["b", ("b", 1, 0)]
    assert [plan.plan_id for plan in teller.begin().plans] == ["a", "b"]


def test_who_resumes_is_told_of_each_removal_and_who_has_all_of_none_that_it_does_not_have() -> None:
    plans = run_with(kept("b", version=2), b=9)
    resumed, has_all = OperationsTeller(plans), OperationsTeller(plans)
    assert [plan.plan_id for plan in has_all.begin().plans] == ["b"]
    events = (removed("plan://a", "plan://b"), added("plan://b"), removed("plan://a"))
    assert told(resumed, *events) == ["a", "b", ("b", 2, 0)]
    assert told(has_all, *events) == ["b", ("b", 2, 0)]


def test_events_of_plans_have_the_number_before_and_come_in_batches_as_others() -> None:
    plans = run_with(kept("a"), kept("b"), a=1, b=2)
    for batched in (False, True):
        teller = OperationsTeller(plans)
        events = [added("plan://a"), added("known://x", 6), added("plan://b", 7)]
        message = WatchRunResponse(batch=EventBatch(events=events))
        found = list(teller.insert([message] if batched else events, batched=batched))
        assert len(found) == (1 if batched else 5)
        inside = found[0].batch.events if batched else found
        assert [one.cursor.seq for one in inside] == [4, 5, 6, 6, 7]
        assert list(teller.insert([message], batched=batched)) == [message]


def test_the_text_of_a_plan_is_told_again_only_if_it_is_another_one() -> None:
    """AP31."""
    plans = run_with(kept("a", "# A"), kept("b", "# B"), a=1, b=2)
    teller = LegacyTeller(plans)
    assert list(teller.begin().legacy_plan.texts) == ["# A", "# B"]
    assert told(teller, updated("plan://a")) == []
    plans.known["a"] = kept("a", "# A\n\nmore", version=2)
    assert told(teller, updated("plan://a")) == [["# A\n\nmore"]]
    assert told(LegacyTeller(plans), updated("plan://b")) == [["# B"]]
