"""The window that a loop works with and how its model calls tools: by its alias, else by its vendor."""

import pytest
from turnwright.types.v1 import model_pb2, settings_pb2

from log_lines import logged
from services import Services, running
from sse_server import SseServer, chat, error
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT

pytestmark = pytest.mark.asyncio

AUTO = settings_pb2.CALL_STYLE_AUTO
DONE = '<update status="200">Done.</update>'


def listed(**said: object) -> dict:
    return {"data": [{"id": "m", **said}]}


TOOLS = listed(context_length=100_000, supported_parameters=["tools"])
NO_TOOLS = listed(context_length=100_000, supported_parameters=["temperature"])
UPDATE = {
    "index": 0, "id": "c", "type": "function",
    "function": {"name": "update", "arguments": '{"status": "200", "body": "Done."}'},
}  # fmt: skip


async def turn_of(services: Services, model: str, calls: settings_pb2.CallStyle.ValueType = AUTO, **loop: object):
    """What the first turn of a loop ran with."""
    queued = await services.client.act(
        services.project, "Do it.", run="r", settings=settings_pb2.LoopSettings(model=model, yolo=True, **loop),
        run_settings=settings_pb2.RunSettings(model=model, calls=calls),
    )  # fmt: skip
    assert (await services.until(queued)).status == 200
    return (await services.client.get_run(services.project, "r", turns_max=1)).turns[0].request


@pytest.mark.parametrize(
    ("page", "window", "style"),
    [(TOOLS, 100_000, settings_pb2.CALL_STYLE_NATIVE), (NO_TOOLS, 100_000, settings_pb2.CALL_STYLE_TAGS),
     (listed(), CONTEXT_LENGTH_DEFAULT, settings_pb2.CALL_STYLE_TAGS),
     (error(500, "oops"), CONTEXT_LENGTH_DEFAULT, settings_pb2.CALL_STYLE_TAGS)],
)  # fmt: skip
async def test_a_model_without_an_alias_has_its_true_window_and_calls_as_it_can(
    tmp_path, monkeypatch, page, window, style
):
    answer = (
        chat("", tool_calls=[UPDATE], finish="tool_calls") if style == settings_pb2.CALL_STYLE_NATIVE else chat(DONE)
    )
    async with SseServer([answer], pages={"/v1/models": page}) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            request = await turn_of(services, "openai/m")

    assert (request.context_length, request.calls) == (window, style)
    assert ("tools" in server.requests[0].json) is (style == settings_pb2.CALL_STYLE_NATIVE)


async def test_the_alias_knows_better_than_the_vendor(tmp_path, monkeypatch):
    async with SseServer([chat(DONE)], pages={"/v1/models": TOOLS}) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            can = model_pb2.Capabilities(tools=False)
            model = await services.client.set_model(
                model_pb2.Model(
                    alias="own",
                    vendor_model="openai/m",
                    context_length=50_000,
                    output_tokens_max=2000,
                    capabilities=can,
                )
            )
            request = await turn_of(services, "own")
            listed_models = await services.client.list_models()

    assert (request.context_length, request.calls) == (50_000, settings_pb2.CALL_STYLE_TAGS)
    assert [one for one in listed_models if one.alias == "own"] == [model]
    assert (model.output_tokens_max, model.capabilities) == (2000, can)
    # Nothing was left to ask.
    assert server.looks == []


async def test_a_limit_of_the_run_holds_below_the_window_of_the_model(tmp_path, monkeypatch):
    async with SseServer([chat(DONE)], pages={"/v1/models": TOOLS}) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            queued = await services.client.act(
                services.project, "Do it.", run="r", settings=settings_pb2.LoopSettings(model="openai/m"),
                run_settings=settings_pb2.RunSettings(model="openai/m", context_limit=20_000),
            )  # fmt: skip
            await services.until(queued)
            turn = (await services.client.get_run(services.project, "r", turns_max=1)).turns[0]

    assert turn.request.context_length == 20_000
    # Tags need no capability.
    assert turn.request.calls == settings_pb2.CALL_STYLE_TAGS


async def test_a_script_that_calls_tools_is_offered_them(tmp_path):
    async with running(tmp_path) as services:
        (tmp_path / "native.txt").write_text(
            '=== reply ===\n=== call name=update id=c ===\n{"status": "200", "body": "Done."}\n'
        )
        (tmp_path / "tags.txt").write_text(f"=== reply ===\n{DONE}\n")
        native = await turn_of(services, "scripted/native")
        await services.client.delete_run(services.project, "r")
        tags = await turn_of(services, "scripted/tags")

    assert (native.calls, tags.calls) == (settings_pb2.CALL_STYLE_NATIVE, settings_pb2.CALL_STYLE_TAGS)


async def test_that_a_window_is_assumed_is_logged_once_for_each_model(tmp_path):
    async with running(tmp_path, log_level="warning") as services:
        services.script(DONE, name="m")
        services.script(DONE, name="n")
        with logged("warning") as lines:
            for run, model in enumerate(("scripted/m", "scripted/m", "scripted/n")):
                settings = settings_pb2.LoopSettings(model=model)
                await services.until(
                    await services.client.act(services.project, "Do it.", run=f"r{run}", settings=settings)
                )

    assumed = [(line["model"], line["tokens"]) for line in lines if line["event"] == "context_length_assumed"]
    assert assumed == [("scripted/m", CONTEXT_LENGTH_DEFAULT), ("scripted/n", CONTEXT_LENGTH_DEFAULT)]
