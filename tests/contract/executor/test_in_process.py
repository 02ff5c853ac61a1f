"""Services of one process hand values to each other, others messages: a run is the same either way."""

from collections import Counter

import pytest

from services import running

pytestmark = pytest.mark.asyncio

REPLIES = (
    '<get path="a.txt"/><think>Hm.</think><set path="b.txt">new</set><update status="102">on</update>',
    '<set_plan kind="markdown">First this.</set_plan><update status="102">on</update>',
    '<sh>echo said</sh><get path="a.txt" visibility="summarized"/><nonsense/><update status="102">on</update>',
    '<get path="*.txt"/><update status="200">done é</update>',
)
VARYING = ("create_time", "update_time", "send_time", "begin_time", "end_time", "expire_time")


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")


async def ran(root, *, as_neighbours):
    """What a run of some turns was, by its entries and turns, and what watchers heard of its entries."""
    root.mkdir()
    async with running(root, as_neighbours=as_neighbours, record_after_s=1e6) as services:
        (services.files / "a.txt").write_text("text of a\n" * 30)
        services.script(*REPLIES)
        assert (await services.until(await services.act())).status == 200
        view = await services.client.get_run(services.project, "r", turns_max=9)
        found = [entry async for entry in services.client.list_entries(services.project, "r", "**")]
        told = [event.WhichOneof("event") for event in services.events]
        return (
            [_plain(entry) for entry in found],
            [(turn.number, turn.result.status, turn.result.finish, turn.result.usage) for turn in view.turns],
            # Who reads late has the events of several commits in another order.
            Counter(
                word for word in told if word in ("message_added", "turn_started", "turn_finished", "message_removed")
            ),
        )


def _plain(entry):
    for name in VARYING:
        if name in entry.DESCRIPTOR.fields_by_name:
            entry.ClearField(name)
    return entry.path, entry.body if "sh://" not in entry.path else "", entry.state, entry.position, entry.write_count


async def test_a_run_is_the_same_with_a_network_and_without(tmp_path):
    near = await ran(tmp_path / "near", as_neighbours=True)
    assert near == await ran(tmp_path / "far", as_neighbours=False)
    assert len(near[1]) == len(REPLIES)
