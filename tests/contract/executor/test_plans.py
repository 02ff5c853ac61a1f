"""Plans as a model sets them: tools, their failures, no other way. Rows RP01, RP03, RP04, AP16, AP42; decisions C45, C46."""

from __future__ import annotations

import json
import re

import grpc
import pytest
from turnwright.types.v1 import plan_pb2, settings_pb2

from contract.executor.shared_stack import ON_BOTH_DATABASES, SHARED_SERVICES
from services import running
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_grammar.reader.parser import read_reply

pytestmark = ON_BOTH_DATABASES
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
ITEMS = '[{"content": "Run the tests", "priority": "high", "status": "pending"}]'


def said(services, turn=1):
    """The plan commands of a turn in their order: tool, outcome, text."""
    found = sorted(services.view().entries.values(), key=lambda one: one.position)
    return [
        (one.path.split("/")[3], one.outcome, one.body)
        for one in found
        if one.path.startswith(f"log://turn_{turn}/") and "_plan/" in one.path
    ]


async def plan_of(services, plan_id="", version=0):
    return await services.client.get_plan(services.project, "r", plan_id=plan_id, version=version)


@pytest.mark.parametrize("mode", ["act", "ask"])
async def test_a_model_sets_adds_and_reads_in_one_reply(services, mode) -> None:
    """RP01, RP03, RP04: each command sees what those before it did, in both modes; nobody has to decide."""
    services.script(
        "<set_plan># One</set_plan><update_plan>a</update_plan><update_plan>b</update_plan><get_plan/>"
        f'<set_plan mode="agent">Two</set_plan><get_plan/><get_plan version="1"/>{GO_ON}',
        DONE,
    )
    loop = await services.until(await getattr(services, mode)(yolo=False))
    whole = "# One\n\n---\n\n## Plan updates\n\na\n\nb"
    assert said(services) == [
        ("set_plan", "", "The plan main is version 1 now, 3 tokens."),
        ("update_plan", "", "Added to the plan main: delta 1 of version 1."),
        ("update_plan", "", "Added to the plan main: delta 2 of version 1."),
        ("get_plan", "", whole),
        ("set_plan", "", "The plan main is version 2 now, 2 tokens."),
        ("get_plan", "", "Two"),
        ("get_plan", "", whole),
    ]
    assert loop.status == 200
    latest, first = await plan_of(services), await plan_of(services, version=1)
    assert (latest.version, latest.mode, latest.body, [*latest.deltas]) == (2, "agent", "Two", [])
    assert (first.mode, [delta.text for delta in first.deltas]) == (mode, ["a", "b"])
    attributes = json.loads((await services.entry("log://turn_1/get_plan/4")).attributes_json)
    assert attributes.items() >= {"plan_id": "main", "version": 1, "kind": "markdown", "deltas": 2}.items()


async def test_items_and_files_are_kinds_of_plans(services) -> None:
    (services.files / "PLAN.md").write_text("# Plan")
    services.script(
        f'<set_plan plan_id="steps" kind="items">{ITEMS}</set_plan><set_plan plan_id="none" kind="items">[]</set_plan>'
        f'<set_plan plan_id="file" kind="file">PLAN.md</set_plan>{GO_ON}',
        DONE,
    )
    await services.until(await services.act())
    steps, none, file = [await plan_of(services, name) for name in ("steps", "none", "file")]
    assert [(one.content, one.status) for one in steps.items] == [("Run the tests", plan_pb2.PLAN_STATUS_PENDING)]
    assert (none.kind, none.body, file.kind, file.body) == (
        plan_pb2.PLAN_KIND_ITEMS,
        "[]",
        plan_pb2.PLAN_KIND_FILE,
        "PLAN.md",
    )


@pytest.mark.parametrize(
    ("command", "outcome", "words"),
    [
        ("<update_plan>x</update_plan>", "not_found:404", "<set_plan> makes it"),
        ("<get_plan/>", "not_found:404", "<set_plan> makes it"),
        ('<get_plan version="-1"/>', "invalid:400", "numbered from 1"),
        ("<set_plan></set_plan>", "invalid:400", "needs the whole plan"),
        ("<update_plan></update_plan>", "invalid:400", "what is to be added"),
        ('<set_plan plan_id="a/b">x</set_plan>', "invalid:400", "letters, digits"),
        ('<set_plan kind="list">x</set_plan>', "invalid:400", "markdown, items, file"),
        ('<set_plan mode="two words">x</set_plan>', "invalid:400", "one word"),
        ('<set_plan kind="items">{}</set_plan>', "invalid:400", "JSON array"),
        (f'<set_plan kind="items">{ITEMS.replace("pending", "done")}</set_plan>', "invalid:400", "items[0].status"),
        ('<set_plan kind="file">gone.md</set_plan>', "not_found:404", "gone.md"),
        ('<set_plan kind="file">known://a</set_plan>', "invalid:400", "project file"),
        (f"<set_plan>{'x' * 98_305}</set_plan>", "too_large:413", "98304 bytes, and this has 98305"),
        (f"<update_plan>{'x' * 16_385}</update_plan>", "too_large:413", "16384 bytes, and this has 16385"),
    ],
)
async def test_what_no_plan_can_be_fails_its_command_and_says_what_to_do(services, command, outcome, words) -> None:
    """AP16, RP02, RP03: nothing is stored."""
    services.script(f"{command}{GO_ON}", DONE)
    loop = await services.until(await services.act())
    [(_, found, text)] = said(services)
    assert (found, loop.status) == (outcome, 200)
    assert words in text
    with pytest.raises(TurnwrightError) as missing:
        await plan_of(services)
    assert missing.value.reason is Reason.ENTRY_NOT_FOUND


async def test_a_plan_that_fits_no_packet_of_the_loop_is_refused_with_both_figures(services) -> None:
    """C46: nothing would make it smaller."""
    services.script(f"<set_plan>{'x ' * 30_000}</set_plan>{GO_ON}", f"<set_plan>short</set_plan>{GO_ON}", DONE)
    loop = await services.until(await services.act())
    [(_, outcome, text)] = said(services)
    assert (outcome, loop.status) == ("too_large:413", 200)
    assert "would have 30000 tokens together" in text
    assert re.search(r"a packet of this run has 29\d+ for everything", text)
    assert (await plan_of(services)).body == "short"


@pytest.mark.parametrize("known", ["run", "model"])
async def test_a_client_sets_no_plan_that_no_packet_can_show(own_database, tmp_path, monkeypatch, known) -> None:
    """C46: whoever sets it, where the window is known: by the run's own limit, or by the model's."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    if known == "model":
        monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "8192")
    async with running(tmp_path) as services:
        client, run = services.client, (services.project, "r")
        await client.create_run(
            *run, settings_pb2.RunSettings(model="m", context_limit=8192 if known == "run" else None)
        )
        long, half = "x" * 16_384, "x" * 8_192
        for _ in range(2):
            with pytest.raises(TurnwrightError) as error:
                await client.set_plan(*run, plan_pb2.Plan(body=long))
            assert (error.value.reason, error.value.metadata["unit"]) == (Reason.LIMIT_EXCEEDED, "tokens")
            record = await client.call_tool(*run, "set_plan", {}, long)
            assert (record.outcome, "8192 for everything" in record.body) == ("too_large:413", True)
        with pytest.raises(TurnwrightError):
            await plan_of(services)
        await client.set_plan(*run, plan_pb2.Plan(body=half))
        with pytest.raises(TurnwrightError) as error:
            await client.update_plan(*run, half)
        assert error.value.metadata["actual"] == "8192"
        assert (await client.call_tool(*run, "update_plan", {}, half)).outcome == "too_large:413"
        record = await client.call_tool(*run, "set_plan", {"plan_id": "beside"}, half)
        assert (record.outcome, (await plan_of(services)).deltas) == ("too_large:413", [])


async def test_plans_that_together_fit_no_packet_are_refused_to_a_model(services) -> None:
    """C46: with the latest deltas of all of them."""
    half = "x" * 30_000
    delta = f"<update_plan>{'d' * 15_000}</update_plan>"
    services.script(
        f'<set_plan>{half}</set_plan><set_plan plan_id="beside">{half}</set_plan>{GO_ON}',
        f"{delta}{delta}{GO_ON}",
        DONE,
    )
    loop = await services.until(await services.act())
    assert [outcome for turn in (1, 2) for _, outcome, _ in said(services, turn)] == ["", "too_large:413"] * 2
    assert (loop.status, len((await plan_of(services)).deltas)) == (200, 1)


@pytest.mark.parametrize(
    "command",
    [
        '<set path="plan://main">x</set>',
        '<set path="plan://main" visibility="archived"/>',
        '<set path="plan://new">x</set>',
        '<cp path="known://a" to="plan://main"/>',
        '<mv path="known://a" to="plan://main"/>',
        '<mv path="plan://main" to="known://b"/>',
        '<mv path="plan://main" to="b.md"/>',
        '<rm path="plan://main"/>',
        '<rm path="plan://*"/>',
    ],
)
async def test_no_other_tool_changes_a_plan(services, command) -> None:
    """C45: for models and for clients."""
    services.script(f'<set_plan>One</set_plan><set path="known://a">x</set>{command}{GO_ON}', DONE)
    loop = await services.until(await services.act())
    failed = [one for one in services.view().entries.values() if one.path.startswith("log://") and one.status >= 400]
    # What is no file is no change of the project.
    assert ([one.outcome for one in failed], loop.status) == (["plan_tool:409"], 422 if "b.md" in command else 200)
    assert "set_plan" in failed[0].body
    assert ((await plan_of(services)).body, (services.files / "b.md").exists()) == ("One", False)
    (command,) = read_reply(command).commands
    record = await services.client.call_tool(
        services.project, "r", command.name, dict(command.attributes), command.body
    )
    assert (record.outcome, (await plan_of(services)).version) == ("plan_tool:409", 1)


async def test_get_shows_the_text_of_a_plan_and_leaves_it_as_it_is(services) -> None:
    services.script(f'<set_plan>One</set_plan><get path="plan://main"/><get path="plan://*"/>{GO_ON}', DONE)
    assert (await services.until(await services.act())).status == 200
    assert {one.outcome for one in services.view().entries.values() if one.path.startswith("log://")} == {""}


async def test_a_client_sets_a_plan_by_the_tool(services) -> None:
    services.script(DONE)
    await services.until(await services.act())
    for _ in range(2):
        record = await services.client.call_tool(services.project, "r", "set_plan", {}, "By hand", request_id="once")
    assert (record.status, (await plan_of(services)).version) == (200, 1)


class Deafening(grpc.aio.ServerInterceptor):
    """The first call of an rpc of the store is carried out, and its caller does not hear of it."""

    def __init__(self, rpc: str) -> None:
        self.rpc = f"/turnwright.plans.v1.PlanService/{rpc}"
        self.heard: list[str] = []

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if details.method != self.rpc:
            return handler

        async def deaf(request, context):
            answer = await handler.unary_unary(request, context)
            self.heard.append(request.request_id)
            if len(self.heard) == 1:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "The store did not answer.")
            return answer

        return grpc.unary_unary_rpc_method_handler(deaf, handler.request_deserializer, handler.response_serializer)


@pytest.mark.parametrize("rpc", ["SetPlan", "UpdatePlan"])
async def test_what_the_store_did_and_nobody_heard_of_happens_once(own_database, tmp_path, monkeypatch, rpc) -> None:
    """RP01: a command that is carried out again gets its first answer."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    deafening = Deafening(rpc)
    async with running(tmp_path, [deafening]) as services:
        services.script(f"<set_plan>One</set_plan><update_plan>a</update_plan>{GO_ON}", DONE)
        loop = await services.until(await services.act())
        plan = await plan_of(services)
    assert (loop.status, plan.version, [delta.text for delta in plan.deltas]) == (200, 1, ["a"])
    assert len(deafening.heard) == 2
    assert len({*deafening.heard}) == 1
    assert deafening.heard[0]


async def test_plans_outlive_every_service(own_services) -> None:
    """AP40."""
    own_services.script(f"<set_plan>One</set_plan><update_plan>a</update_plan>{GO_ON}", DONE)
    await own_services.until(await own_services.act())
    before = await plan_of(own_services)
    for name in ("executor", "assembler", "provider", "store"):
        await own_services.restart(name)
    assert await plan_of(own_services) == before


async def test_no_plan_is_removed_that_is_not_there(services) -> None:
    """AP19: the caller hears of it, and nothing is written."""
    services.script(f"<set_plan>One</set_plan>{GO_ON}", DONE)
    await services.until(await services.act())
    before = (await services.client.get_run(services.project, "r")).run
    with pytest.raises(TurnwrightError) as error:
        await services.client.delete_plan(services.project, "r", plan_id="other")
    assert (error.value.reason, error.value.metadata) == (Reason.ENTRY_NOT_FOUND, {"path": "plan://other"})
    assert (await services.client.get_run(services.project, "r")).run == before
