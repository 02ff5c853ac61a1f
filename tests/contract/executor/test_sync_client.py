"""The client without async, against a stack in another thread: it starts tasks, watches, decides, and is interrupted."""

from __future__ import annotations

import asyncio
import threading

import pytest

from services import SECRET
from turnwright_client import Accept, Reason, Reject, RunList, RunView, SyncClient, TurnwrightError, proposed_hunks

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITE = '<set path="{}">new\n</set><update status="102">Writing it.</update>'
DONE = '<update status="200">Done.</update>'
LINES = [f"line {number}\n" for number in range(20)]
TWO_HUNKS = (
    '<set path="long.txt"><<SEARCH\nline 1\nSEARCH\n<<REPLACE\nfirst\nREPLACE\n<<SEARCH\nline 18\nSEARCH\n<<REPLACE\nlast\nREPLACE</set>'
    '<update status="102">Both.</update>'
)


@pytest.fixture
def services(shared_services):
    return shared_services


def connected(services):
    return SyncClient.connect(services.addresses["executor"], SECRET)


async def test_a_task_runs_to_its_end_and_the_functions_are_called_where_it_waits(services):
    services.script(WRITE.format("s.txt"), DONE)

    def program():
        asked, kinds = [], []
        with connected(services) as client:

            def decide(proposal):
                # It may call the client itself.
                [content] = client.get_proposal(services.project, task.run, proposal.path).contents
                asked.append((content.path, content.content, threading.current_thread()))
                return True

            task = client.act(services.project, "Write it.", model="m")
            end = client.run_to_end(task, decide, lambda event: kinds.append(event.WhichOneof("event")))
            names = [run.run for run in client.list_runs(services.project)]
            return task, end, asked, kinds, names

    task, end, asked, kinds, names = await asyncio.to_thread(program)
    assert (end.text, end.verdict, end.status) == ("Done.", "done", 200)
    [(path, content, thread)] = asked
    assert (path, content) == ("s.txt", "new\n")
    assert thread is not threading.main_thread()
    assert not thread.name.startswith("turnwright-client")
    assert "stream_delta" in kinds
    assert task.run in names
    assert (services.files / "s.txt").read_text() == "new\n"


async def test_a_watch_that_is_left_ends_and_two_are_folded_alike(services):
    services.script(DONE)

    def program():
        with connected(services) as client:
            task = client.ask(services.project, "Say it.", model="m")
            client.run_to_end(task)
            views = [RunView(), RunView()]
            for view in views:
                for event in client.watch(services.project, task.run):
                    view.apply(event)
                    if view.run is not None:
                        break
            runs = RunList()
            for message in client.watch_runs(services.project):
                runs.apply(message)
                if runs.is_complete:
                    break
            return task, views, runs

    task, (first, second), runs = await asyncio.to_thread(program)
    assert first == second
    assert first.run.loop.status == 200
    assert task.run in runs.runs
    assert not [one for one in threading.enumerate() if one.name.startswith("turnwright-client")]


@pytest.mark.parametrize(("hunks", "expected"), [([0], ("first\n", "line 18\n")), ([1], ("line 1\n", "last\n"))])
async def test_some_hunks_are_accepted_and_the_others_left_out(services, hunks, expected):
    (services.files / "long.txt").write_text("".join(LINES))
    services.script(TWO_HUNKS, DONE)
    seen = []

    def decide(proposal):
        seen.append([hunk.path for hunk in proposed_hunks(proposal)])
        return Accept("Not the other one.", hunks=hunks)

    def program():
        with connected(services) as client:
            return client.run_to_end(client.act(services.project, "Change both.", model="m"), decide)

    assert (await asyncio.to_thread(program)).status == 200
    assert seen == [["long.txt", "long.txt"]]
    written = (services.files / "long.txt").read_text().splitlines(keepends=True)
    assert (written[1], written[18]) == expected


@pytest.mark.parametrize("decision", [Accept(hunks=[]), Reject(), False])
async def test_no_hunk_is_a_rejection(services, decision):
    (services.files / "long.txt").write_text("".join(LINES))
    services.script(TWO_HUNKS, DONE)
    ended = await services.client.run_to_end(services.act(run="", yolo=False), lambda _: decision)
    assert (ended.status, ended.verdict) == (499, "stopped")
    assert (services.files / "long.txt").read_text() == "".join(LINES)


async def test_hunks_that_are_not_there_are_refused_before_anything_is_decided(services):
    (services.files / "long.txt").write_text("".join(LINES))
    services.script(TWO_HUNKS, DONE)
    queued = await services.act(run="", yolo=False)
    with pytest.raises(TurnwrightError, match=r"^INVALID_FIELD: There are hunks 0 to 1, and \[2\] were chosen"):
        await services.client.run_to_end(queued, lambda _: Accept(hunks=[2]))
    assert (await services.client.run_to_end(queued, lambda _: False)).status == 499


async def test_what_a_function_raises_is_raised_there_and_errors_print_their_names(services):
    services.script(WRITE.format("u.txt"), DONE)

    def program():
        with connected(services) as client:
            task = client.act(services.project, "Write it.", model="m")
            with pytest.raises(LookupError):
                client.run_to_end(task, lambda _: {}["nothing"])
            with pytest.raises(TurnwrightError) as missing:
                client.get_run(services.project, "none")
            ended = client.run_to_end(task, lambda _: False)
        return missing.value, ended

    missing, ended = await asyncio.to_thread(program)
    assert missing.reason is Reason.RUN_NOT_FOUND
    assert str(missing).startswith("RUN_NOT_FOUND: There is no run 'none' in ")
    assert f"{missing.reason} {missing.reason!s}" == "RUN_NOT_FOUND RUN_NOT_FOUND"
    assert not any(character.isdigit() for character in str(missing).replace(services.project, ""))
    assert ended.verdict == "stopped"


async def test_it_refuses_to_wait_in_its_own_loop(services):
    def program():
        with connected(services) as client:

            async def within():
                return client.discover()

            with pytest.raises(RuntimeError, match="use the async Client"):
                client._thread.wait(within())

    await asyncio.to_thread(program)
