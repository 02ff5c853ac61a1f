"""The client's wait for the end of a task, which decides on what the task proposes."""

import asyncio

import pytest

from turnwright_client import Reason, TurnwrightError
from turnwright_core.runs import ABORTED, PROPOSED

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITE = '<set path="{}">new\n</set><update status="102">Writing it.</update>'
QUESTION = '<ask_user question="Which one?">a, b</ask_user><update status="102">Asking.</update>'
DONE = '<update status="200">Done.</update>'


@pytest.fixture
def services(shared_services):
    return shared_services


async def test_a_model_is_named_without_settings_and_the_end_says_what_came_of_it(services):
    services.script(DONE)
    ended = await services.client.run_to_end(services.client.ask(services.project, "Say it.", model="m"))
    assert (ended.text, ended.status, ended.verdict) == ("Done.", 200, "done")
    assert ended.spend == ended.loop.usage
    assert ended.spend.total_tokens > 0
    assert [entry.body for path, entry in ended.view.entries.items() if path.startswith("prompt://")] == ["Say it."]


@pytest.mark.parametrize("is_async", [True, False])
async def test_each_proposal_is_decided_once_in_its_order(services, is_async):
    services.script(WRITE.format("b.txt") + WRITE.format("c.txt"), QUESTION, DONE)
    asked, kinds = [], []

    def decide(proposal):
        asked.append(proposal.WhichOneof("effect"))
        return "b" if asked[-1] == "question" else True

    async def decide_later(proposal):
        await asyncio.sleep(0)
        return decide(proposal)

    queued = await services.act(run="", yolo=False)
    loop = await services.client.run_to_end(
        queued, decide_later if is_async else decide, lambda event: kinds.append(event.WhichOneof("event"))
    )
    assert (loop.status, asked) == (200, ["files", "files", "question"])
    assert "stream_delta" in kinds
    assert [(services.files / name).read_text() for name in ("b.txt", "c.txt")] == ["new\n", "new\n"]
    [record] = [one async for one in services.client.list_entries(queued.project, queued.run, "log://*/ask_user/*")]
    assert record.body == "Which one?\nb"


@pytest.mark.parametrize(("decision", "status"), [(False, 499), ("Not that one.", 200)])
async def test_a_rejection_ends_the_task_and_a_reason_is_read_by_the_model(services, decision, status):
    services.script(WRITE.format("b.txt"), DONE)
    queued = await services.act(run="", yolo=False)
    assert (await services.client.run_to_end(queued, lambda _: decision)).status == status
    assert not (services.files / "b.txt").exists()


async def test_what_somebody_else_decided_first_goes_on(services):
    services.script(WRITE.format("b.txt"), DONE)
    queued = await services.act(run="", yolo=False)

    async def too_late(proposal):
        await services.client.resolve(queued.project, queued.run, proposal.path, accept=True)
        return False

    assert (await services.client.run_to_end(queued, too_late)).status == 200
    assert (services.files / "b.txt").read_text() == "new\n"


async def test_proposals_of_a_task_before_it_are_not_its_own(services):
    services.script(WRITE.format("b.txt"), WRITE.format("c.txt"), DONE)
    first = await services.act(run="r", yolo=False)
    await services.until(first, PROPOSED)
    second = await services.act(run="r", yolo=False)
    asked, seen, again = [], asyncio.Event(), asyncio.Event()

    async def decide(proposal):
        asked.append(proposal.path)
        return True

    def follow(event):
        seen.set()
        if event.proposal_pending.proposal.path == "log://turn_2/set/c.txt":
            again.set()

    async with asyncio.TaskGroup() as group:
        # The one before is not over because another one is queued.
        begun = group.create_task(services.client.run_to_end(first))
        ending = group.create_task(services.client.run_to_end(second, decide, follow))
        await seen.wait()
        await services.client.resolve(
            first.project, "r", "log://turn_1/set/b.txt", accept=False, comment="Another file."
        )
        await again.wait()
        await services.client.resolve(first.project, "r", "log://turn_2/set/c.txt", accept=False)
        assert (await begun).status == ABORTED
        assert (await ending).status == 200
    assert asked == ["log://turn_3/set/b.txt", "log://turn_4/set/c.txt"]


async def test_what_the_decider_raises_ends_the_wait_and_not_the_task(services):
    services.script(WRITE.format("b.txt"), DONE)
    queued = await services.act(run="", yolo=False)
    with pytest.raises(LookupError):
        await services.client.run_to_end(queued, lambda _: {}["nothing"])
    with pytest.raises(TurnwrightError) as refused:
        await services.client.run_to_end(queued, lambda proposal: services.client.get_entry("p", "r", proposal.path))
    assert refused.value.reason is Reason.PROJECT_NOT_FOUND
    assert (await services.client.run_to_end(queued, lambda _: True)).status == 200
