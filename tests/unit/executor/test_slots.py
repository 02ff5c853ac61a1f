"""Slots: how many work at a time, who is next, and who hears that it waits."""

import asyncio

import pytest

from turnwright_executor.turn.slots import NOTIFIED_AFTER_S, READY_MAX, Slot, Slots

pytestmark = pytest.mark.asyncio


class Runs:
    """Runs of projects that take slots, and the order in which they got them."""

    def __init__(self, limit, ready=READY_MAX):
        self.loops, self.ready = Slots(limit), Slots(ready)
        self.got = []
        self.notified = []

    def slot(self, project, run):
        return Slot(self.loops, self.ready, project, lambda: self.notified.append(run))

    async def take(self, project, run):
        slot = self.slot(project, run)
        await slot.begin_step()
        slot.end_step()
        self.got.append(run)
        return slot


async def settled():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_slots_go_by_turns_over_projects_then_runs():
    # Twelve runs of one project do not keep the only one of another waiting until all of them are done.
    runs = Runs(1)
    first = await runs.take("a", "a0")
    waiting = [asyncio.create_task(runs.take("a", f"a{number}")) for number in range(1, 4)]
    await settled()
    waiting += [asyncio.create_task(runs.take(project, f"{project}0")) for project in ("b", "c")]
    slot = first
    for _ in waiting:
        await settled()
        slot.sleep()
        await settled()
        slot = next(
            task for task in waiting if task.done() and task.result() is not slot and task.result().has_loop
        ).result()
    assert runs.got == ["a0", "a1", "b0", "c0", "a2", "a3"]


async def test_no_more_than_so_many_are_at_work_and_who_waits_for_a_model_is_not_counted():
    runs = Runs(64, ready=2)
    working = [await runs.take("a", f"{number}") for number in range(2)]
    third = asyncio.create_task(runs.take("a", "third"))
    await settled()
    assert (third.done(), runs.ready.free, runs.loops.free) == (False, 0, 61)
    working[0].pause()
    await settled()
    assert third.done()
    assert working[0].has_loop, "it only waits"


async def test_a_loop_that_sleeps_gives_its_slot_back_and_asks_for_it_again():
    runs = Runs(1)
    slot = await runs.take("a", "limited")
    other = asyncio.create_task(runs.take("b", "healthy"))
    await settled()
    assert not other.done()
    slot.sleep()
    again = asyncio.create_task(slot.begin_step())
    await settled()
    assert (other.done(), again.done()) == (True, False)
    other.result().sleep()
    await again
    slot.end_step()
    assert slot.has_loop


async def test_a_step_that_takes_long_is_not_counted():
    runs = Runs(2, ready=1)
    slot = runs.slot("a", "slow")
    await slot.begin_step()
    # The step goes on, and waits for something else.
    assert await asyncio.wait_for(runs.take("a", "other"), 30)
    slot.end_step()


async def test_a_turn_that_has_ended_lets_others_go_first():
    runs = Runs(2, ready=1)
    slot = await runs.take("a", "first")
    slot.yield_turn()
    assert runs.ready.free == 1, "one at a time: there is nobody else"
    await slot.begin_step()
    slot.end_step()
    other = asyncio.create_task(runs.take("a", "other"))
    await settled()
    slot.yield_turn()
    await settled()
    assert other.done()


async def test_who_waits_is_notified_and_who_gives_up_takes_nothing_along():
    runs = Runs(1)
    slot = await runs.take("a", "first")
    waiting = asyncio.create_task(runs.take("b", "second"))
    async with asyncio.timeout(30):
        while not runs.notified:  # noqa: ASYNC110 - nobody else is there to say it
            await asyncio.sleep(0.05)
    assert runs.notified == ["second"]
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    slot.sleep()
    assert runs.loops.free == 1
    assert NOTIFIED_AFTER_S < 1


async def test_a_slot_that_is_given_to_who_gives_up_goes_to_the_next():
    runs = Runs(1)
    slot = await runs.take("a", "first")
    second, third = (asyncio.create_task(runs.take("b", run)) for run in ("second", "third"))
    await settled()
    slot.sleep()
    second.cancel()
    await settled()
    assert third.done()
    assert runs.got == ["first", "third"]
