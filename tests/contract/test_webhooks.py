"""Webhooks: what is written with the end of a loop reaches a real HTTP server, once it answers, and is signed. ADR 76."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from turnwright.store.v1 import delivery_pb2, store_service_pb2_grpc
from turnwright.types.v1 import settings_pb2
from turnwright.webhooks.v1 import webhook_service_pb2 as pb
from turnwright.webhooks.v1 import webhook_service_pb2_grpc

from services import SECRET, running
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import NAME_CHARS_MAX
from turnwright_kit.peer import Peer
from turnwright_store.domain.webhooks import ATTEMPTS_S, next_wait_s

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
ENDED, WAITING = pb.WEBHOOK_EVENT_LOOP_ENDED, pb.WEBHOOK_EVENT_LOOP_WAITING
PENDING, DELIVERED, DEAD = pb.DELIVERY_STATE_PENDING, pb.DELIVERY_STATE_DELIVERED, pb.DELIVERY_STATE_DEAD
WAIT_S = 60
PAGE = Path(__file__).parents[2] / "docs" / "webhooks.md"


@dataclass
class Receiver:
    """A server that answers with the statuses that it is given, the last one again and again."""

    statuses: list[int] = field(default_factory=lambda: [204])
    url: str = ""
    got: list[tuple[dict[str, str], str]] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    hangs: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # An executor that stops leaves.
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
            body = (await reader.readexactly(int(headers["content-length"]))).decode()
            self.got.append(({**headers, ":line": line}, body))
            self.came.set()
            if self.hangs:
                await reader.read()
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\nlocation: {self.url}/else\r\n\r\n".encode())

    async def until(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.got) < count:
                self.came.clear()
                await self.came.wait()


def verifier() -> Any:
    """The function of the documentation that says whether a message is from the deployment."""
    (code,) = re.findall(r"```python verify.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["is_ours"]


@pytest_asyncio.fixture
async def receiver():
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hooks?key=1"
    async with server:
        yield made


@pytest_asyncio.fixture
async def services(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, web_networks="127.0.0.1/32") as made:
        yield made


async def ended(services, *, script: str = DONE, **more: Any) -> str:
    """The run of a loop that has ended."""
    services.script(script)
    queued = await services.act(**more)
    await services.until(queued, 200)
    return queued.run


async def delivered(
    services,
    state: Any,
    count: int = 1,
    is_so: Callable[[pb.Delivery], bool] = lambda _: True,
    project: str = "",
) -> list[pb.Delivery]:
    """The deliveries in a state for which something is so, once there are that many."""
    async with asyncio.timeout(WAIT_S):
        while True:
            every = await services.client.list_deliveries(project or services.project, state=state)
            if len(found := list(filter(is_so, every))) >= count:
                return found
            await asyncio.sleep(0.02)


def ended_with(status: int) -> Callable[[pb.Delivery], bool]:
    return lambda one: one.http_status == status


async def hook(services, receiver, name: str = "ci", **more: Any) -> str:
    _, secret = await services.client.set_webhook(services.project, pb.Webhook(name=name, url=receiver.url, **more))
    return secret


async def test_the_end_of_a_loop_is_told_and_signed(services, receiver):
    secret = await hook(services, receiver)
    run = await ended(services)
    (one,) = await delivered(services, DELIVERED)
    ((headers, body),) = receiver.got
    assert headers[":line"] == "POST /hooks?key=1 HTTP/1.1"
    assert (headers["webhook-id"], headers["content-type"]) == (one.delivery_id, "application/json")
    is_ours = verifier()
    assert is_ours(secret, headers, body.encode())
    assert not is_ours(secret, headers, body.replace("200", "422").encode())
    assert not is_ours(await hook(services, receiver, "other"), headers, body.encode())
    told = json.loads(body)
    assert told["type"] == "loop_ended"
    about = {name: told["data"][name] for name in ("project", "run", "loop", "status", "summary", "turns")}
    assert about == {
        "project": services.project, "run": run, "loop": 1, "status": 200, "summary": "Done.", "turns": 1,
    }  # fmt: skip
    assert (one.event, one.attempts, one.http_status, one.error, one.body) == (ENDED, 1, 204, "", body)
    assert not one.HasField("next_time")


async def test_who_is_told_what_is_said_by_events_and_run(services, receiver):
    await hook(services, receiver, "waits", events=[WAITING])
    await hook(services, receiver, "both", events=[WAITING, ENDED])
    await hook(services, receiver, "other", run="another")
    services.script(f"<sh>true</sh>{DONE}")
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    found = await delivered(services, DELIVERED, 2)
    assert {(one.webhook, one.event) for one in found} == {("waits", WAITING), ("both", WAITING)}
    await services.client.abort(services.project, queued.run)
    found = await delivered(services, DELIVERED, 3)
    assert (found[0].webhook, found[0].event) == ("both", ENDED)
    assert json.loads(found[0].body)["data"]["status"] == 499


async def test_what_fails_is_tried_again_under_the_same_id(services, receiver):
    receiver.statuses = [500, 302, 200]
    await hook(services, receiver)
    await ended(services)
    await receiver.until(1)
    for attempt, status in ((1, 500), (2, 302)):
        (one,) = await delivered(services, PENDING, is_so=ended_with(status))
        assert (one.attempts, one.error) == (attempt, f"The server answered HTTP {status}.")
        wait_s = one.next_time.seconds - one.create_time.seconds
        assert ATTEMPTS_S[attempt - 1] <= wait_s < ATTEMPTS_S[attempt - 1] + WAIT_S
        if attempt == 1:
            make_due(services, attempts=1)
            await receiver.until(2)
    await services.client.retry_delivery(services.project, one.delivery_id)
    (one,) = await delivered(services, DELIVERED)
    # A redirect leads nowhere.
    assert {headers[":line"] for headers, _ in receiver.got} == {"POST /hooks?key=1 HTTP/1.1"}
    assert {headers["webhook-id"] for headers, _ in receiver.got} == {one.delivery_id}
    assert one.attempts == 3


def make_due(services, **where: int) -> None:
    """Let the time until the next attempt pass."""
    with contextlib.closing(sqlite3.connect(services.root / "home" / "turnwright.db", timeout=30)) as database:
        changed = database.execute(
            "UPDATE deliveries SET next_ms = 1 WHERE next_ms <> 0 AND attempts = :attempts", where
        )
        assert changed.rowcount == 1
        database.commit()


@pytest.mark.parametrize(("attempts", "status"), [(9, 503), (0, 410)])
async def test_what_cannot_arrive_is_given_up_and_may_be_sent_again(services, receiver, attempts, status):
    receiver.statuses = [status, 200]
    await hook(services, receiver)
    if attempts:
        receiver.statuses = [503, *receiver.statuses]
    await ended(services)
    if attempts:
        await delivered(services, PENDING, is_so=ended_with(503))
        with contextlib.closing(sqlite3.connect(services.root / "home" / "turnwright.db", timeout=30)) as database:
            database.execute("UPDATE deliveries SET attempts = ?, next_ms = 1", (attempts,))
            database.commit()
    (one,) = await delivered(services, DEAD)
    assert (one.http_status, one.attempts, one.HasField("next_time")) == (status, attempts + 1, False)
    again = await services.client.retry_delivery(services.project, one.delivery_id)
    assert (again.state, again.attempts) == (PENDING, attempts + 1)
    await delivered(services, DELIVERED)


async def test_it_is_tried_for_four_days():
    waits = [next_wait_s(attempt) for attempt in range(1, 11)]
    assert waits[-1] is None
    assert 3 * 24 < sum(filter(None, waits)) / 3600 < 4 * 24


async def test_what_is_lost_with_its_executor_is_due_again(services, receiver):
    """It is claimed, and never heard of: the attempt that another executor makes is another one."""
    receiver.hangs = True
    await hook(services, receiver)
    await ended(services)
    await receiver.until(1)
    store = Peer("store", services.addresses["store"], SECRET, 20.0)
    rows = store_service_pb2_grpc.StoreServiceStub(store.channel)
    claim = delivery_pb2.ClaimDeliveriesRequest(limit=10)
    assert not (await store.call(rows.ClaimDeliveries, claim)).deliveries
    make_due(services, attempts=1)
    (second,) = (await store.call(rows.ClaimDeliveries, claim)).deliveries
    assert second.attempt == 2
    late = {"delivery_id": second.delivery_id, "http_status": 500, "error": "late"}
    await store.call(rows.EndDelivery, delivery_pb2.EndDeliveryRequest(attempt=1, **late))
    (one,) = await delivered(services, PENDING)
    assert (one.attempts, one.error) == (2, "")
    ended_well = delivery_pb2.EndDeliveryRequest(attempt=2, delivery_id=second.delivery_id, http_status=200)
    await store.call(rows.EndDelivery, ended_well)
    await delivered(services, DELIVERED)
    await store.close()


def all_due(services) -> None:
    """Let the time until the next attempt of each pass."""
    with contextlib.closing(sqlite3.connect(services.root / "home" / "turnwright.db", timeout=30)) as database:
        database.execute("UPDATE deliveries SET next_ms = 1 WHERE next_ms <> 0")
        database.commit()


async def test_slow_servers_keep_two_places_each_and_four_of_a_project(services, receiver, tmp_path):
    receiver.statuses = [500]
    for name in ("one", "two", "three"):
        await hook(services, receiver, name)
    for _ in range(4):
        await ended(services)
    await delivered(services, PENDING, 12, ended_with(500))
    (tmp_path / "other").mkdir()
    other = (await services.client.init_project(str(tmp_path / "other"))).name
    await services.client.set_webhook(other, pb.Webhook(name="ci", url=receiver.url))
    queued = await services.client.act(other, "x", settings=settings_pb2.LoopSettings(model="m"))
    await delivered(services, PENDING, is_so=ended_with(500), project=other)
    await services.stop("executor")
    all_due(services)
    store = Peer("store", services.addresses["store"], SECRET, 20.0)
    rows = store_service_pb2_grpc.StoreServiceStub(store.channel)
    claim = delivery_pb2.ClaimDeliveriesRequest(limit=100)
    claimed = (await store.call(rows.ClaimDeliveries, claim)).deliveries
    runs = [json.loads(one.body)["data"]["run"] for one in claimed]
    # The projects take turns, and while these are being sent nobody gets more.
    assert (len(runs), runs.index(queued.run) < 2) == (5, True)
    assert not (await store.call(rows.ClaimDeliveries, claim)).deliveries
    done = delivery_pb2.EndDeliveryRequest(delivery_id=claimed[0].delivery_id, attempt=2, http_status=200)
    await store.call(rows.EndDelivery, done)
    assert len((await store.call(rows.ClaimDeliveries, claim)).deliveries) <= 1
    await store.close()
    await services.start("executor")


async def test_what_is_being_sent_is_not_sent_once_more_by_hand(services, receiver):
    receiver.hangs = True
    await hook(services, receiver)
    await ended(services)
    await receiver.until(1)
    (one,) = await delivered(services, PENDING)
    again = await services.client.retry_delivery(services.project, one.delivery_id)
    assert (again.attempts, again.next_time) == (1, one.next_time)
    store = Peer("store", services.addresses["store"], SECRET, 20.0)
    rows = store_service_pb2_grpc.StoreServiceStub(store.channel)
    assert not (await store.call(rows.ClaimDeliveries, delivery_pb2.ClaimDeliveriesRequest(limit=9))).deliveries
    await store.close()


async def test_to_set_a_webhook_anew_makes_another_secret(services, receiver):
    first = await hook(services, receiver)
    assert await hook(services, receiver) == first
    await services.client.delete_webhook(services.project, "ci")
    assert await hook(services, receiver) != first


@pytest.mark.parametrize(
    ("networks", "url", "told"),
    [
        ("", "http://127.0.0.1:1/", "not on the public internet"),
        ("", "https://169.254.169.254/latest", "not on the public internet"),
        ("", "http://8.8.8.8/", "needs https"),
        ("127.0.0.1/32", "http://127.0.0.1:1/", "accepts no connection"),
        ("127.0.0.1/32", "http://nowhere.invalid/", "cannot be resolved"),
    ],
)
async def test_it_goes_where_executors_may_go(tmp_path, monkeypatch, networks, url, told):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, web_networks=networks) as services:
        await services.client.set_webhook(services.project, pb.Webhook(name="ci", url=url))
        await ended(services)
        assert await delivered(services, PENDING, is_so=lambda one: told in one.error)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "webhook.name"),
        ({"name": "c i"}, "webhook.name"),
        ({"url": "ftp://example.com"}, "webhook.url"),
        ({"url": "https://"}, "webhook.url"),
        ({"url": "https://me:secret@example.com/"}, "webhook.url"),
        ({"url": "https://example.com/#here"}, "webhook.url"),
        ({"url": "https://example.com/a b"}, "webhook.url"),
        ({"url": "https://example.com:99999/"}, "webhook.url"),
        ({"url": "https://ex\x00ample.com/"}, "webhook.url"),
        ({"events": [0]}, "webhook.events"),
        ({"run": "r" * 1_000_000}, "webhook.run"),
        ({"run": "r\x00"}, "webhook.run"),
    ],
)
async def test_a_webhook_that_means_nothing_is_refused(services, fields, field):
    wanted = pb.Webhook(**{"name": "ci", "url": "https://example.com/", **fields})
    with pytest.raises(TurnwrightError) as told:
        await services.client.set_webhook(services.project, wanted)
    too_long = len(wanted.run) > NAME_CHARS_MAX
    reason = Reason.LIMIT_EXCEEDED if too_long else Reason.INVALID_FIELD
    assert (told.value.reason, told.value.metadata["field"]) == (reason, field)


async def test_its_secret_is_nowhere_stored_and_can_be_shown_again(services, receiver):
    wanted = pb.Webhook(name="ci", url=receiver.url)
    made = [await services.client.set_webhook(services.project, wanted, request_id="once") for _ in range(2)]
    assert made[0] == made[1]
    assert await hook(services, receiver, "other") != made[0][1]
    await services.stop("store")
    kept = b"".join(path.read_bytes() for path in (services.root / "home").glob("turnwright.db*"))
    assert b"whsec" not in kept
    assert made[0][1].removeprefix("whsec_").encode() not in kept
    await services.start("store")


async def test_a_webhook_is_replaced_listed_and_removed_with_what_it_was_told(services, receiver):
    await hook(services, receiver)
    await hook(services, receiver, events=[WAITING])
    (one,) = await services.client.list_webhooks(services.project)
    assert (one.name, list(one.events), one.set_by) == ("ci", [WAITING], "operator")
    await hook(services, receiver)
    await ended(services)
    (told,) = await delivered(services, DELIVERED)
    await services.client.delete_webhook(services.project, "ci")
    assert await services.client.list_webhooks(services.project) == []
    assert await services.client.list_deliveries(services.project) == []
    for call in (
        services.client.delete_webhook(services.project, "ci"),
        services.client.retry_delivery(services.project, told.delivery_id),
    ):
        with pytest.raises(TurnwrightError) as refused:
            await call
        assert refused.value.reason is Reason.ENTRY_NOT_FOUND


async def test_a_run_without_webhooks_tells_nobody(services):
    await ended(services)
    assert await services.client.list_deliveries(services.project) == []


async def test_deliveries_come_in_pages_the_latest_first(services, receiver):
    await hook(services, receiver)
    runs = [await ended(services) for _ in range(5)]
    await delivered(services, DELIVERED, 5)
    peer = Peer("executor", services.addresses["executor"], SECRET, 20.0)
    rpc = webhook_service_pb2_grpc.WebhookServiceStub(peer.channel).ListDeliveries
    found, token = [], ""
    while True:
        asked = pb.ListDeliveriesRequest(project=services.project, page_size=2, page_token=token)
        page = await peer.call(rpc, asked)
        found += [one.run for one in page.deliveries]
        if not (token := page.next_page_token):
            break
    await peer.close()
    assert found == runs[::-1]
