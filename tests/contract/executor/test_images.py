"""Images that go with a task, by the path of a file or an entry: what the model is sent, and what is refused. RC01."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from turnwright.types.v1 import settings_pb2

from services import Services, running
from sse_server import Answer, chat
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import IMAGE_BYTES_MAX

pytestmark = pytest.mark.asyncio

PNG = b"\x89PNG\r\n\x1a\n" + b"one pixel"
JPEG = b"\xff\xd8\xff\xe0" + b"another"
DONE = '<update status="200">Done.</update>'


def url(mime: str, data: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


async def act(services: Services, *images: str, run: str = "r"):
    settings = settings_pb2.LoopSettings(model="m", yolo=True, images=images)
    return await services.client.act(services.project, "What is this?", run=run, settings=settings)


def shown(request) -> list[str]:
    """The images of a request, in order."""
    [user] = [one for one in request.json["messages"] if one["role"] == "user"]
    return [part["image_url"]["url"] for part in user["content"] if part["type"] == "image_url"]


async def test_a_model_sees_the_images_in_every_turn_although_the_file_has_gone(tmp_path, over_http):
    async with over_http(chat("<think>Hm.</think>"), chat(DONE), chat(DONE)) as server:
        async with running(tmp_path) as services:
            (services.files / "a.png").write_bytes(PNG)
            # A name says nothing: vendors look inside.
            (services.files / "b.png").write_bytes(JPEG)
            queued = await act(services, "a.png", "b.png")
            loop = await services.until(queued)
            (services.files / "a.png").unlink()
            later = await services.until(await act(services))
            told = [one async for one in services.client.list_messages(services.project, "r")]
        requests = [request for request in server.requests if request.method == "POST"]
    assert (loop.status, loop.turns, later.status) == (200, 2, 200)
    wanted = [url("image/png", PNG), url("image/jpeg", JPEG)]
    assert [shown(request) if isinstance(request.json["messages"][-1]["content"], list) else [] for request in requests] == [
        wanted, wanted, [],
    ]  # fmt: skip
    [prompt] = [one.message for one in told if one.path == "prompt://1"]
    assert [part.image.path for part in prompt.parts if part.HasField("image")] == [
        "image://loop_1/1", "image://loop_1/2",
    ]  # fmt: skip


async def test_the_same_images_are_sent_again_after_a_crash(tmp_path, over_http):
    # C44
    async with over_http(Answer(silent=True, end="hang"), chat(DONE)) as server:
        async with running(tmp_path, work_poll_s=0.1) as services:
            (services.files / "a.png").write_bytes(PNG)
            queued = await act(services, "a.png")
            for _ in range(1500):
                if server.requests:
                    break
                await asyncio.sleep(0.02)
            (services.files / "a.png").write_bytes(JPEG)
            await services.restart("executor")
            loop = await services.until(queued)
        first, second = (request.body for request in server.requests)
    assert (loop.status, first) == (200, second)
    assert base64.b64encode(PNG) in first


async def test_an_image_of_an_entry_and_one_of_an_earlier_loop(tmp_path, over_http):
    told = f'<set path="known://shot">{url("image/png", PNG)}</set>{DONE}'
    async with over_http(chat(told), chat(DONE), chat(DONE)) as server:
        async with running(tmp_path) as services:
            await services.until(await act(services))
            loops = [await services.until(await act(services, path)) for path in ("known://shot", "image://loop_2/1")]
        last = [request for request in server.requests if request.method == "POST"][1:]
    assert [loop.status for loop in loops] == [200, 200]
    assert [shown(request) for request in last] == [[url("image/png", PNG)]] * 2


REFUSED = {
    "nothing there": ("none.png", None, "entry_not_found"),
    "no such entry": ("known://none", None, "entry_not_found"),
    "a folder": (".", None, "invalid_field"),
    "outside": ("../a.png", None, "invalid_field"),
    "what no file can be called": ("a" * 300, None, "invalid_field"),
    "a text": ("a.png", b"text", "invalid_field"),
    "empty": ("a.png", b"", "invalid_field"),
    "too long": ("a.png", PNG + bytes(IMAGE_BYTES_MAX), "limit_exceeded"),
}


@pytest.mark.parametrize(("path", "data", "reason"), REFUSED.values(), ids=REFUSED)
async def test_what_is_no_image_ends_the_loop_with_its_path_before_the_model_is_asked(services, path, data, reason):
    services.script(DONE, DONE)
    if data is not None:
        (services.files / path).write_bytes(data)
    loop = await services.until(await act(services, path))
    assert (loop.status, loop.reason.partition(":")[0], loop.turns) == (500, reason, 0)
    assert path in loop.reason
    # The run goes on without it.
    assert (await services.until(await act(services))).status == 200


async def test_an_entry_that_is_no_image_is_named(services):
    services.script('<set path="known://a">data:image/png;base64,!!</set>' + DONE, DONE)
    await services.until(await act(services))
    loop = await services.until(await act(services, "known://a"))
    assert (loop.status, "known://a is not an image" in loop.reason) == (500, True)


async def test_more_images_than_a_loop_may_show_are_refused_at_once(services):
    services.script(DONE)
    for paths in (["a.png"] * 9, [""]):
        with pytest.raises(TurnwrightError) as refused:
            await act(services, *paths)
        assert refused.value.reason in (Reason.LIMIT_EXCEEDED, Reason.INVALID_FIELD)
        assert "settings.images" in json.dumps(refused.value.metadata)
