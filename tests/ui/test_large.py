"""Much to show: ten thousand runs, two thousand turns, and a run as a file without a server.

How long frames take is printed; what is held to is how much of it exists at a time.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3

import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from turnwright.executor.v1 import event_pb2, executor_service_pb2
from turnwright.turns.v1 import turn_service_pb2
from turnwright.types.v1 import command_record_pb2, entry_pb2, run_pb2, session_pb2, settings_pb2, turn_pb2, usage_pb2

from needs import needs
from turnwright_cli.run_page import page_of
from turnwright_ui.recording import page_with
from ui.browsers import CHROMIUM, DONE, GO_ON, NODES_MAX, nodes, recorded, stack

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
    needs("chromium", "apt-get install chromium", there=CHROMIUM),
]
RUNS, TURNS = 10_000, 2_000
PARTS = 20
FRAMES = """() => {
  window.frames_ms = [];
  new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) window.frames_ms.push(Math.round(duration)); })
    .observe({ type: "longtask", buffered: true });
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory):
    async with stack(tmp_path_factory.mktemp("ui")) as made:
        yield made


async def scrolled(page, what):
    """Scroll from the first row to the last; the most elements that there were on the way."""
    most = 0
    for part in range(PARTS + 1):
        where = f"box => box.scrollTop = (box.scrollHeight - box.clientHeight) * {part / PARTS}"
        await page.locator(f"{what} .scroll").evaluate(where)
        await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        most = max(most, await nodes(page))
    print(f"{what}: tasks of over 50 ms took {await page.evaluate('window.frames_ms')} ms; {most} elements")
    return most


async def test_ten_thousand_runs_are_a_list_of_those_in_sight(at):
    services = at.services
    await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
    with contextlib.closing(sqlite3.connect(services.root / "home" / "turnwright.db")) as database, database:
        copied = {
            table: [row[1] for row in database.execute(f"pragma table_info({table})") if row[1] not in left_out]
            for table, left_out in (("scopes", ("id", "key")), ("runs", ("id", "alias", "scope_id")))
        }
        scopes, runs = (", ".join(f"a.{column}" for column in copied[table]) for table in ("scopes", "runs"))
        database.execute(
            f"insert into scopes (key, {scopes.replace('a.', '')}) with recursive n(i) as (select 1 union all select i + 1 "
            f"from n where i < {RUNS - 1}) select printf('many:%05d', i), {scopes} from n, scopes a "
            "where a.id = (select scope_id from runs where alias = 'r')"
        )
        database.execute(
            f"insert into runs (alias, scope_id, {runs.replace('a.', '')}) select 'run-' || substr(s.key, 6), s.id, {runs} "
            "from runs a, scopes s where a.alias = 'r' and s.key like 'many:%'"
        )
    async with at.page() as page:
        await page.evaluate(FRAMES)
        await page.locator(f"[data-count='{RUNS}']").wait_for()
        assert await scrolled(page, ".of-runs") < NODES_MAX
        await page.get_by_role("searchbox").fill("run-09999")
        await page.get_by_role("row", name=re.compile("run-09999")).wait_for()
        await page.locator("[data-count='1']").wait_for()


def long_run():
    """The answers of a server about a run of many turns."""
    entries, turns = [], []
    for number in range(1, TURNS + 1):
        begin, end = Timestamp(seconds=10 * number), Timestamp(seconds=10 * number + 9)
        durations = {
            name: Duration(seconds=seconds)
            for name, seconds in (("first_delta_duration", 1), ("model_duration", 3), ("work_duration", 6))
        }
        usage = usage_pb2.Usage(prompt_tokens=9000, cached_tokens=6000, completion_tokens=100, cost_usd=0.001)
        result = turn_pb2.TurnResult(finish="stop", usage=usage, status=102, **durations)
        turns.append(turn_pb2.Turn(number=number, loop=1, begin_time=begin, end_time=end, result=result))
        record = command_record_pb2.CommandRecord(tool="sh", command=command_record_pb2.CommandText(body="make test"))
        for path, body, more in (
            (f"assistant://{number}", f"Step {number}. " * 40, {}),
            (f"log://turn_{number}/sh/make", "ok\n" * 100, {"record": record, "status": 200}),
            (f"log://turn_{number}/update/going", "Going on.", {"status": 200}),
        ):
            entries.append(
                entry_pb2.Entry(
                    path=path,
                    scheme=path.partition(":")[0],
                    body=body,
                    body_size_bytes=len(body),
                    turn=number,
                    position=len(entries) + 1,
                    **more,
                )
            )
    run = run_pb2.Run(project="p", run="long", turn=TURNS, status=200)
    messages = []
    for part in range(PARTS):
        some = entries[part * len(entries) // PARTS : (part + 1) * len(entries) // PARTS]
        last = part == PARTS - 1
        snapshot = event_pb2.Snapshot(
            part=part, last=last, run=run, entries=some, state=session_pb2.SESSION_STATE_COMPLETED if last else 0
        )
        messages.append(executor_service_pb2.WatchRunResponse(snapshot=snapshot).SerializeToString())
    pages = {}
    for page in range(PARTS):
        some = turns[page * TURNS // PARTS : (page + 1) * TURNS // PARTS]
        token = str(page + 1) if page < PARTS - 1 else ""
        answer = turn_service_pb2.ListTurnsResponse(turns=some, next_page_token=token)
        pages[str(page) if page else ""] = [answer.SerializeToString()]
    return page_with("p", "long", {"WatchRun": {"": messages}, "ListTurns": pages})


async def test_two_thousand_turns_are_a_timeline_of_those_in_sight(at, tmp_path):
    page, asked = await recorded(at.browser, tmp_path / "long.html", long_run())
    await page.evaluate(FRAMES)
    await page.locator(f".of-turns[aria-rowcount='{TURNS + 1}']").wait_for()
    await page.get_by_text("2,000 turns").wait_for()
    assert await scrolled(page, ".of-turns") < NODES_MAX
    await page.get_by_role("row", name=re.compile("^2000 ")).click()
    await page.get_by_role("heading", name="Turn 2000").wait_for()
    assert not asked


async def test_a_run_is_one_file_that_shows_the_same_and_asks_nobody(at, tmp_path):
    services = at.services
    services.script(
        f"</script><img src=x onerror=alert(1)>\n<set path='a.txt'>one\n</set>{GO_ON}",
        f"<set_plan>- look\n</set_plan>{GO_ON}",
        f"<set_plan>- look\n- repair\n</set_plan>{DONE}",
    )
    await services.until(await services.act("Write a file.", run="exported"))
    text = await page_of(services.client, services.project, "exported")
    page, asked = await recorded(at.browser, tmp_path / "run.html", text)
    await page.get_by_role("row", name=re.compile("^1 ")).click()
    await page.get_by_role("heading", name="a.txt created").wait_for()
    assert "</script><img src=x" in await page.locator(".reply").inner_text()
    await page.get_by_role("link", name="Packets").click()
    await page.locator("figure.bar").nth(1).wait_for()
    await page.get_by_role("link", name="Plan").click()
    await page.get_by_role("heading", name="Changes since version 1").wait_for()
    await page.get_by_role("link", name="Rules").click()
    await page.get_by_role("heading", name=re.compile("Approval rules")).wait_for()
    # Nothing can be changed in a copy.
    assert await page.get_by_role("button", name=re.compile("Accept|Reject|Send|Fork|Rewind|Stop|Leave")).count() == 0
    assert await page.locator("img").count() == 0
    assert not asked
