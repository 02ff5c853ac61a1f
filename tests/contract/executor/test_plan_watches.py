"""Who watches a run hears of its plans in the form that it asked for. Rows AP03, AP07, AP17, AP20-AP26, AP29-AP33, AP43."""

from __future__ import annotations

import asyncio
import contextlib
import json
from itertools import pairwise

import grpc
import pytest
from turnwright.executor.v1 import executor_service_pb2, executor_service_pb2_grpc
from turnwright.types.v1 import plan_pb2

from contract.executor.replicas import talking, two_executors
from contract.executor.shared_stack import ON_BOTH_DATABASES, SHARED_SERVICES
from services import SECRET, running
from turnwright_client import RunView
from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import CHUNK_BYTES, PLAN_BODY_BYTES_MAX, PLAN_DELTA_BYTES_MAX
from turnwright_core.plans.plan import WatchedPlans
from turnwright_core.rpc.headers import call_metadata

pytestmark = ON_BOTH_DATABASES
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
OF_PLANS = ("plan_updated", "plan_removed", "legacy_plan")


async def ended(services, run="r"):
    """A run whose first loop has ended."""
    services.script(DONE)
    await services.until(await services.act(run=run))
    services.events.clear()


def markdown(plan_id, body, **more):
    return plan_pb2.Plan(plan_id=plan_id, kind=plan_pb2.PLAN_KIND_MARKDOWN, body=body, **more)


def checklist(plan_id, *steps):
    items = [{"content": name, "priority": "high", "status": status} for name, status in steps]
    return plan_pb2.Plan(plan_id=plan_id, kind=plan_pb2.PLAN_KIND_ITEMS, body=json.dumps(items))


class Watcher:
    """What one watch is told, kept and folded."""

    def __init__(self, services, client=None, run="r", after=None, form="operations"):
        self.events, self.view = [], RunView()
        self._opened = (client or services.client, services.project, run, after, form)

    async def __aenter__(self):
        client, project, run, after, form = self._opened
        self._task = asyncio.create_task(self._follow(client.watch(project, run, after, plans=form)))
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, stream):
        async with contextlib.aclosing(stream):
            async for event in stream:
                self.events.append(event)
                self.view.apply(event)

    async def until(self, condition):
        async with asyncio.timeout(60):
            while not condition(self):
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.02)
        return self

    async def began(self):
        return await self.until(lambda one: one.view.run is not None)

    def told(self):
        """What was told of plans, in short."""
        return [short(event) for event in self.events if event.WhichOneof("event") in OF_PLANS]

    @property
    def bodies(self):
        return {plan_id: plan.body for plan_id, plan in self.view.held.plans.items()}

    @property
    def items(self):
        found = self.view.held.legacy
        return None if found is None else [item.content for item in found]


def short(event):
    match event.WhichOneof("event"):
        case "plan_updated":
            plan = event.plan_updated
            return (plan.plan_id, plan.version, len(plan.deltas))
        case "plan_removed":
            return event.plan_removed
        case _:
            return [item.content for item in event.legacy_plan.items]


def has_seen(path):
    """Whether a watcher was told of an entry."""
    return lambda one: path in one.view.entries


async def test_each_change_of_a_plan_is_reported_with_the_whole_plan(services) -> None:
    """AP07, AP21, AP22, AP23, AP24, AP25."""
    await ended(services)
    client, at = services.client, (services.project, "r")
    async with Watcher(services) as watcher:
        await watcher.began()
        assert watcher.view.held.plans == {}
        for step, change in enumerate((
            client.set_plan(*at, markdown("", "# One")),
            client.update_plan(*at, "more", plan_id="main"),
            client.set_plan(*at, checklist("Main", ("a", "pending"))),
            client.set_plan(*at, checklist("main")),
            client.delete_plan(*at, plan_id="main"),
            client.set_plan(*at, markdown("main", "# Again")),
        )):  # fmt: skip
            await change
            await watcher.until(lambda one, wanted=step + 1: len(one.told()) == wanted)
        assert watcher.told() == [
            ("main", 1, 0),
            ("main", 1, 1),
            ("Main", 1, 0),
            ("main", 2, 0),
            "main",
            ("main", 3, 0),
        ]
    assert list(watcher.bodies.items()) == [("Main", watcher.bodies["Main"]), ("main", "# Again")]
    assert [item.content for item in watcher.view.held.plans["Main"].items] == ["a"]
    async with Watcher(services) as late:
        await late.began()
    assert late.view.held == watcher.view.held
    assert list(late.bodies) == list(watcher.bodies)


async def test_plans_raise_no_number_and_come_before_the_entry_that_tells_of_them(services) -> None:
    await ended(services)
    async with Watcher(services) as asked, Watcher(services, form="none") as plain:
        await asked.began()
        await plain.began()
        await services.client.set_plan(services.project, "r", markdown("main", "# One"))
        await asked.until(has_seen("plan://main"))
        await plain.until(lambda one: one.view.cursor == asked.view.cursor)
    kinds = [event.WhichOneof("event") for event in asked.events]
    place = kinds.index("plan_updated")
    before, plan, after = asked.events[place - 1 : place + 2]
    assert (plan.cursor, after.cursor.seq) == (before.cursor, before.cursor.seq + 1)
    assert after.message_added.entry.path == "plan://main"
    without = [event for event in asked.events if event.WhichOneof("event") not in OF_PLANS]
    assert [event.cursor for event in without] == [event.cursor for event in plain.events]
    assert not any(event.WhichOneof("event") in OF_PLANS for event in plain.events)


async def test_two_watchers_of_a_run_hear_each_its_own_form(services) -> None:
    """AP03, AP26, AP29, AP30, AP33."""
    await ended(services)
    client, at = services.client, (services.project, "r")
    async with Watcher(services) as asked, Watcher(services, form="legacy") as old:
        await asked.began()
        await old.began()
        assert (old.items, asked.view.held.legacy) == ([], None)
        told, lists = [("b", 1, 0), ("a", 1, 0), "b", "a"], [["b1"], ["b1", "a1", "a2"], ["a1", "a2"], []]
        for step, change in enumerate((
            client.set_plan(*at, checklist("b", ("b1", "pending"))),
            client.set_plan(*at, markdown("a", "Text\n- [x] a1\n- [ ] a2")),
            client.delete_plan(*at, plan_id="b"),
            client.delete_plan(*at, plan_id="a"),
        )):  # fmt: skip
            await change
            await old.until(lambda one, wanted=step + 1: one.told() == lists[:wanted])
            await asked.until(lambda one, wanted=step + 1: one.told() == told[:wanted])
    assert (asked.told(), old.told()) == (told, lists)


async def test_a_list_is_reported_without_what_its_readers_do_not_know(services) -> None:
    """AP17, AP31, AP32."""
    (services.files / "plan.md").write_text("# Steps\n- [ ] from the file\n")
    await ended(services)
    client, at = services.client, (services.project, "r")
    await client.set_plan(*at, checklist("a", ("one", "cancelled"), ("two", "blocked")))
    await client.set_plan(*at, markdown("b", "\n## A heading\ntext"))
    await client.set_plan(*at, plan_pb2.Plan(plan_id="c", kind=plan_pb2.PLAN_KIND_FILE, body="nowhere.md"))
    await client.set_plan(*at, plan_pb2.Plan(plan_id="d", kind=plan_pb2.PLAN_KIND_FILE, body="plan.md"))
    nowhere = ("../up", "/abs/x", "known://none", "http://[", "no://such", "a*")
    for number, body in enumerate(nowhere):
        await client.set_plan(*at, plan_pb2.Plan(plan_id=f"e{number}", kind=plan_pb2.PLAN_KIND_FILE, body=body))
    async with Watcher(services, form="legacy") as old:
        await old.until(lambda one: len(one.view.held.legacy or ()) == 5 + len(nowhere))
    names = plan_pb2.PlanStatus.Name
    assert [(item.content, names(item.status)) for item in old.view.held.legacy] == [
        ("one", "PLAN_STATUS_COMPLETED"),
        ("two", "PLAN_STATUS_PENDING"),
        ("A heading", "PLAN_STATUS_PENDING"),
        ("nowhere.md", "PLAN_STATUS_PENDING"),
        ("from the file", "PLAN_STATUS_PENDING"),
        *((body, "PLAN_STATUS_PENDING") for body in nowhere),
    ]


async def test_what_a_watcher_has_is_not_told_again(services) -> None:
    """AP43: the list is the same, though a plan is another one."""
    await ended(services)
    client, at = services.client, (services.project, "r")
    async with Watcher(services, form="legacy") as old, Watcher(services) as asked:
        await old.began()
        await asked.began()
        begin = asked.view.cursor
        for name in ("one", "two", "three"):
            await client.set_plan(*at, checklist("main", (name, "pending")))
            await client.set_plan(*at, checklist("main", ("A", "pending")))
        await client.update_plan(*at, "no task")
        # Its delta leaves with the version before: two entries change, and one plan.
        await client.set_plan(*at, checklist("main", ("A", "pending")))
        await client.set_plan(*at, markdown("other", "# B"))
        await old.until(has_seen("plan://other"))
        await asked.until(has_seen("plan://other"))
    lists = old.told()
    assert all(one != other for one, other in pairwise(lists))
    assert lists[-1] == ["A", "B"]
    contents = asked.told()
    assert len(contents) == len(set(contents))
    assert contents[-2:] == [("main", 7, 0), ("other", 1, 0)]
    # Who comes back hears of each plan as it is now, and of that once.
    async with Watcher(services, after=begin) as back:
        await back.until(has_seen("plan://other"))
    assert back.told() == contents[-2:]


async def test_the_text_of_a_markdown_plan_is_told_once_to_those_who_know_a_list_only(services) -> None:
    """AP31: a list cannot show it."""
    await ended(services)
    client, at = services.client, (services.project, "r")
    await client.set_plan(*at, markdown("early", "# Early"))
    async with Watcher(services, form="legacy") as old:
        await old.until(lambda one: texts_of(one) == ["# Early"])
        cursor = old.view.cursor
        for body in ("## Steps\n- [x] Refactor", "## Steps\n- [x] Refactor", "# Design\n\nUse a queue."):
            await client.set_plan(*at, markdown("main", body))
            await old.until(lambda one, body=body: body in texts_of(one))
        await client.set_plan(*at, checklist("main", ("A", "pending")))
        await client.set_plan(*at, markdown("other", "# B"))
        await old.until(has_seen("plan://other"))
    async with Watcher(services, after=cursor, form="legacy") as back:
        await back.until(has_seen("plan://other"))
    assert texts_of(old) == ["# Early", "## Steps\n- [x] Refactor", "# Design\n\nUse a queue.", "# B"]
    # Who comes back hears of what moved meanwhile, and nothing of the rest.
    assert texts_of(back)[-1] == "# B"
    assert "# Early" not in texts_of(back)


def texts_of(watcher):
    """The texts that a watcher was told to show."""
    lists = [
        *(event.snapshot.legacy_plan for event in watcher.events),
        *(event.legacy_plan for event in watcher.events),
    ]
    return [text for one in lists for text in one.texts]


async def test_a_watcher_that_comes_back_hears_what_it_missed_and_no_snapshot(services) -> None:
    await ended(services)
    client, at = services.client, (services.project, "r")
    await client.set_plan(*at, markdown("kept", "- [ ] 0"))
    await client.set_plan(*at, markdown("first", "- [ ] 1"))
    async with Watcher(services) as asked:
        await asked.until(lambda one: set(one.bodies) == {"kept", "first"} and has_seen("plan://first")(one))
    cursor = asked.view.cursor
    await client.set_plan(*at, markdown("main", "- [ ] 2"))
    await client.delete_plan(*at, plan_id="first")
    async with Watcher(services, after=cursor) as back, Watcher(services, after=cursor, form="legacy") as old:
        await back.until(lambda one: len(one.told()) == 2)
        await old.until(lambda one: one.items == ["0", "2"])
    # The events of a moment of the store have no order among them, and a replica reads several moments at once.
    assert sorted(back.told(), key=str) == [("main", 1, 0), "first"]
    assert not any(event.HasField("snapshot") for event in back.events + old.events)
    # Cut off behind what was told of the plan: the event is still to come, and brings it again.
    told = next(event for event in back.events if event.WhichOneof("event") in OF_PLANS)
    async with Watcher(services, after=told.cursor) as again:
        await again.until(lambda one: len(one.told()) == 2)
    assert again.told() == back.told()


async def test_plans_of_any_length_come_in_messages_that_every_client_takes(services) -> None:
    """A snapshot of many long plans comes in parts; a watch that is not batched is told the same."""
    await ended(services)
    client, at = services.client, (services.project, "r")
    body = "é" * (PLAN_BODY_BYTES_MAX // 2)
    for number in range(6):
        await client.set_plan(*at, markdown(f"p{number}", body))
    for _ in range(16):
        await client.update_plan(*at, "x" * PLAN_DELTA_BYTES_MAX, plan_id="p3")
    async with Watcher(services) as first:
        # The executor knows all of it from here on.
        await first.until(lambda one: len(one.bodies) == 6 and len(one.view.held.plans["p3"].deltas) == 16)
    async with Watcher(services) as asked:
        await asked.until(lambda one: one.events and one.events[-1].snapshot.last)
        parts = [event.snapshot for event in asked.events]
        # Where the hub began again meanwhile, a further snapshot has replaced the first one.
        parts = parts[max(place for place, part in enumerate(parts) if part.part == 0) :]
        await client.update_plan(*at, "last", plan_id="p0")
        await asked.until(lambda one: one.told())
    assert [part.part for part in parts] == list(range(len(parts)))
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert max(event.ByteSize() for event in asked.events) < 2 * CHUNK_BYTES
    assert list(asked.bodies) == [f"p{number}" for number in range(6)]
    assert set(asked.bodies.values()) == {body}
    assert len(asked.view.held.plans["p3"].deltas) == 16
    assert asked.told() == [("p0", 1, 1)]


async def test_through_an_executor_that_does_not_own_the_run_a_watch_has_its_form(
    own_database, tmp_path, over_http
) -> None:
    async with over_http(talking(asyncio.Event())), two_executors(tmp_path) as (services, other, seen):
        await services.act()
        at = (services.project, "r")
        await other.set_plan(*at, markdown("early", "- [ ] zero"))
        async with contextlib.AsyncExitStack() as watching:
            open_ = watching.enter_async_context
            asked = [await open_(Watcher(services, other)) for _ in range(2)]
            old = await open_(Watcher(services, other, form="legacy"))
            here = await open_(Watcher(services))
            for watcher in (*asked, old, here):
                await watcher.began()
            await other.set_plan(*at, markdown("main", "- [ ] one"))
            await other.set_plan(*at, checklist("b", ("two", "pending")))
            for watcher in (*asked, here):
                await watcher.until(lambda one: set(one.bodies) == {"early", "main", "b"})
            await old.until(lambda one: one.items == ["zero", "one", "two"])
            # One stream from the owner tells all watchers of a form at the other executor.
            await here.until(lambda _: seen.watches_open == 3)
            await other.delete_plan(*at)
            for watcher in (*asked, here):
                await watcher.until(lambda one: set(one.bodies) == {"early", "b"})
            await old.until(lambda one: one.items == ["zero", "two"])
        shown = [event.snapshot.plans for event in asked[0].events if event.HasField("snapshot")]
        # The other executor may hear of the first plan a moment after its watch has begun.
        in_snapshot = [[plan.plan_id for plan in plans] for plans in shown if plans]
        assert in_snapshot == ([] if ("early", 1, 0) in asked[0].told() else [["early"]])
        assert asked[0].view.cursor.epoch == here.view.cursor.epoch


class PlansWatcher(Watcher):
    """What a watch of nothing but plans is told."""

    def __init__(self, services, client):
        self.events, self.held = [], WatchedPlans()
        self._stream = client.watch_plans(services.project, "r")

    async def __aenter__(self):
        self._task = asyncio.create_task(self._follow(self._stream))
        return self

    async def _follow(self, stream):
        async with contextlib.aclosing(stream):
            async for message in stream:
                self.events.append(message)
                match message.WhichOneof("event"):
                    case "snapshot":
                        self.held.replace(((plan.plan_id, plan) for plan in message.snapshot.plans), None)
                    case "updated":
                        self.held.update(message.updated.plan_id, message.updated)
                    case "removed_plan_id":
                        self.held.remove(message.removed_plan_id)

    def kinds(self):
        """What each message says."""
        return [message.WhichOneof("event") for message in self.events]

    async def has(self, *bodies):
        await self.until(lambda one: [plan.body for plan in one.held.plans.values()] == list(bodies))


async def test_the_plans_of_a_run_can_be_watched_by_themselves_anywhere(own_database, tmp_path) -> None:
    async with two_executors(tmp_path) as (services, other, _seen):
        await ended(services)
        client, at = services.client, (services.project, "r")
        await client.set_plan(*at, markdown("z", "# Z"))
        async with PlansWatcher(services, client) as here, PlansWatcher(services, other) as there:
            for watcher in (here, there):
                await watcher.has("# Z")
            await client.set_plan(*at, markdown("a", "# A"))
            await client.set_plan(*at, markdown("z", "# Z2"))
            for watcher in (here, there):
                await watcher.has("# Z2", "# A")
            await other.delete_plan(*at, plan_id="z")
            for watcher in (here, there):
                await watcher.has("# A")
            await client.set_plan(*at, markdown("z", "# Z3"))
            for watcher in (here, there):
                await watcher.has("# A", "# Z3")
                assert watcher.kinds().count("snapshot") == 1


async def test_a_watch_of_plans_tells_silence_and_refuses_a_run_that_is_not_there(own_database, tmp_path) -> None:
    async with running(tmp_path, event_heartbeat_s=0.05) as services:
        await ended(services)
        async with PlansWatcher(services, services.client) as watcher:
            await watcher.until(lambda one: one.kinds().count("heartbeat") > 1 and "snapshot" in one.kinds())
        assert set(watcher.kinds()) == {"heartbeat", "snapshot"}
        async with contextlib.aclosing(services.client.watch_plans(services.project, "nobody")) as messages:
            with pytest.raises(TurnwrightError) as refused:
                # A slow store is heard of by heartbeats first.
                async for _heartbeat in messages:
                    pass
        assert refused.value.reason.name == "RUN_NOT_FOUND"


async def test_a_form_that_there_is_not_is_refused(services) -> None:
    async with grpc.aio.insecure_channel(services.addresses["executor"]) as channel:
        stub = executor_service_pb2_grpc.ExecutorServiceStub(channel)
        request = executor_service_pb2.WatchRunRequest(project=services.project, run="r", plans=9)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await anext(aiter(stub.WatchRun(request, metadata=call_metadata(SECRET))))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_while_the_store_is_away_a_watcher_is_told_what_the_executor_knows(own_database, tmp_path) -> None:
    async with running(tmp_path) as services:
        await ended(services)
        await services.client.set_plan(services.project, "r", markdown("main", "# One"))
        async with Watcher(services, form="none") as plain:
            await plain.began()
            await services.stop("store")
            async with Watcher(services) as late, Watcher(services, form="legacy") as old:
                await late.began()
                await old.until(lambda one: texts_of(one) == ["# One"])
                await services.start("store")
    assert late.bodies == {"main": "# One"}
