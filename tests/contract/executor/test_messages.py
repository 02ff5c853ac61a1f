"""The messages of a run as clients read them, over all four services. OM01, OM02, OM07, OM08, RD02, RH01; C40, C41."""

from __future__ import annotations

import json
from typing import Any

import pytest
from turnwright.turns.v1 import turn_service_pb2
from turnwright.types.v1 import plan_pb2, run_message_pb2, settings_pb2, turn_pb2
from turnwright.types.v1.message_pb2 import ROLE_ASSISTANT, ROLE_EVENT, ROLE_PLAN, ROLE_TOOL, ROLE_USER

from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from services import Services
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import PROMPT_BYTES_MAX

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
NATIVE = settings_pb2.RunSettings(model="m", calls=settings_pb2.CALL_STYLE_NATIVE)


def call(name: str, arguments: object, vendor_id: str = "v") -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f"=== call name={name} id={vendor_id} ===\n{text}"


async def act(services: Services, prompt: str = "Do it.", **settings: Any):
    wanted = settings_pb2.LoopSettings(model="m", yolo=True, **settings)
    queued = await services.client.act(services.project, prompt, run="r", settings=wanted, run_settings=NATIVE)
    return await services.until(queued)


async def messages(services: Services, run: str = "r") -> list[run_message_pb2.RunMessage]:
    return [message async for message in services.client.list_messages(services.project, run)]


async def of_role(services: Services, role: int, run: str = "r") -> list[run_message_pb2.RunMessage]:
    return [one for one in await messages(services, run) if one.message.role == role]


def text(message: run_message_pb2.RunMessage) -> str:
    return "".join(part.text for part in message.message.parts)


async def test_a_run_is_prompts_replies_and_results_in_their_order(services):
    # OM01, OM02, OM15
    (services.files / "a.txt").write_text("one\n")
    services.script(f"Looking.\n{call('get', {'path': 'a.txt', 'line': 1})}", DONE)
    assert (await act(services)).status == 200
    found = [one for one in await messages(services) if one.turn]
    assert [one.path.partition("://")[0] for one in found] == ["prompt", "assistant", "log", "assistant", "log"]
    assert [one.position for one in found] == sorted(one.position for one in found)
    prompt, reply, result = found[:3]
    assert (prompt.message.role, text(prompt), prompt.turn) == (ROLE_USER, "Do it.", 1)
    assert prompt.create_time.seconds
    assert not prompt.HasField("usage")
    assert (reply.message.role, text(reply), reply.result.kind) == (
        ROLE_ASSISTANT, "Looking.", turn_pb2.REPLY_KIND_REPLY,
    )  # fmt: skip
    assert reply.usage.total_tokens > 0
    assert (reply.result.finish, reply.message.vendor_model) == ("tool_calls", "scripted/m")
    [made] = reply.message.calls
    assert (made.id, made.call_id, result.message.call_id) == ("v", "call_1_0", "call_1_0")
    assert (result.message.role, result.message.tool, result.message.failed) == (ROLE_TOOL, "get", False)
    # What came by tags is told as calls, too.
    [made] = found[3].message.calls
    assert (text(found[3]), made.name, made.call_id, found[4].message.call_id) == ("", "update", *(found[4].path,) * 2)


ARGUMENTS = {
    "numbers": ("get", {"path": "a.txt", "line": 1, "limit": 2}),
    "truth": ("sh", {"command": "true", "background": False}),
    "a list": ("ask_user", {"question": "Which?", "options": ["a", "b"]}),
    "an object of an unknown tool": ("unheard_of", {"x": {"y": [1, 2.5, None, "ü"]}, "content": {"z": 1}}),
    "a text that looks like a number": ("set", {"path": "known://a", "body": "5"}),
}


@pytest.mark.parametrize("made", ARGUMENTS.values(), ids=ARGUMENTS)
async def test_arguments_come_back_with_their_types(services, made):
    services.script(call(*made), DONE)
    (services.files / "a.txt").write_text("one\n")
    wanted = settings_pb2.LoopSettings(model="m", yolo=True)
    queued = await services.client.act(services.project, "Do it.", run="r", settings=wanted, run_settings=NATIVE)
    await services.until(queued, 200, 202, 422)
    found = (await of_role(services, ROLE_ASSISTANT))[0].message.calls[0]
    name, arguments = made
    assert (found.name, json.loads(found.arguments)) == (name, arguments)


async def test_arguments_under_other_names_come_back_under_those_of_the_tool(services):
    services.script(call("set", {"file_path": "known://a", "text": "b"}), DONE)
    await act(services)
    found = (await of_role(services, ROLE_ASSISTANT))[0].message.calls[0]
    assert json.loads(found.arguments) == {"path": "known://a", "body": "b"}


async def test_every_call_has_an_id_of_its_own_and_one_result(services):
    # RD02, C28: also one that is broken, cut, of no tool, or like another one
    made = [
        call("get", {"path": "none.txt"}, "same"), call("get", '{"path": "a', "same"), call("get", "]]]]"),
        call("unheard_of", {"x": 1}, ""), call("set", {"path": "known://a", "body": "b"}),
    ]  # fmt: skip
    services.script("\n".join(made), DONE)
    assert (await act(services)).status == 200
    [reply] = [one for one in await of_role(services, ROLE_ASSISTANT) if one.turn == 1]
    results = [one.message for one in await of_role(services, ROLE_TOOL) if one.turn == 1]
    assert [one.name for one in reply.message.calls] == ["get", "get", "get", "unheard_of", "set"]
    ids = [one.call_id for one in reply.message.calls]
    assert len(set(ids)) == len(ids)
    assert sorted(one.call_id for one in results) == sorted(ids)
    assert {one.call_id: one.failed for one in results}[ids[-1]] is False
    assert all(one.parts[0].text for one in results)


async def test_steering_events_and_plans_are_messages_of_their_kinds(services):
    # OM08, RH01: nobody may take what the runtime tells for what a user said
    services.script(DONE, DONE)
    await act(services)
    await services.client.inject_message(services.project, "r", "Mind the gap.")
    plan = plan_pb2.Plan(kind=plan_pb2.PLAN_KIND_MARKDOWN, body="# One")
    await services.client.set_plan(services.project, "r", plan)
    plan.body = "# Two"
    await services.client.set_plan(services.project, "r", plan)
    await services.client.update_plan(services.project, "r", "More.")
    await services.until(await services.ask("And now?"))

    user = [(one.kind, text(one)) for one in await of_role(services, ROLE_USER) if one.turn]
    assert user == [
        (run_message_pb2.MESSAGE_KIND_PROMPT, "Do it."),
        (run_message_pb2.MESSAGE_KIND_STEERING, "Mind the gap."),
        (run_message_pb2.MESSAGE_KIND_PROMPT, "And now?"),
    ]
    assert [text(one) for one in await of_role(services, ROLE_PLAN)] == ["# One", "# Two", "More."]
    [switch] = await of_role(services, ROLE_EVENT)
    assert json.loads(switch.message.extra)["event"]["subkind"] == "mode_switch"


async def test_pages_say_the_same_as_one_and_bring_the_turns_of_their_messages(services):
    # OM07
    services.script(*[f"<think>{number}</think>" for number in range(3)], DONE)
    await act(services)
    whole = await messages(services)
    request = turn_service_pb2.ListMessagesRequest(project=services.project, run="r", page_size=2)
    paged, pages = [], 0
    async for page in services.client._peer.items(services.client._turns.ListMessages, request, lambda page: [page]):
        paged += page.messages
        pages += 1
        assert {turn.number for turn in page.turns} == {one.turn for one in page.messages if one.turn}
        assert all(turn.request.model == "m" for turn in page.turns)
    assert paged == whole
    assert pages > 2


async def test_a_fork_has_the_messages_it_began_with_and_what_they_were_made_with(services):
    # OM07, OM12
    services.script(DONE, DONE)
    await act(services)
    await services.client.fork_run(services.project, "r", new_run="f")
    await services.client.configure_run(services.project, "f", settings_pb2.RunSettingsPatch(temperature=1.5))
    await services.until(await services.act("And now?", run="f"))
    answer = await services.client._peer.call(
        services.client._turns.ListMessages, turn_service_pb2.ListMessagesRequest(project=services.project, run="f")
    )
    assert [text(one) for one in answer.messages if one.kind == run_message_pb2.MESSAGE_KIND_PROMPT] == [
        "Do it.", "And now?",
    ]  # fmt: skip
    assert {turn.number: turn.request.temperature for turn in answer.turns} == {1: 0.1, 2: 1.5}


async def test_what_is_long_is_cut_and_says_how_long_it_is(services):
    made = [call("set", {"path": f"known://{number}", "body": "ü" * 100_000}) for number in range(3)]
    services.script("\n".join(["ü" * 600_000, *made]), DONE)
    await act(services)
    reply, _ = await of_role(services, ROLE_ASSISTANT)
    assert (len(text(reply)), reply.text_size_bytes) == (512 * 1024, 1_200_000)
    assert [170_000 < len(one.arguments.encode()) <= 512 * 1024 // 3 for one in reply.message.calls] == [True] * 3


async def test_a_page_ends_where_its_messages_become_longer_than_their_entries(services):
    made = [call("set", {"path": f"known://{number}", "body": "b"}) for number in range(6)]
    services.script(*["=== thinking ===\n" + "x" * 450_000 + f"\n{one}" for one in made], DONE)
    await act(services)
    request = turn_service_pb2.ListMessagesRequest(project=services.project, run="r")
    pages = [
        page
        async for page in services.client._peer.items(services.client._turns.ListMessages, request, lambda page: [page])
    ]
    found = [one for page in pages for one in page.messages]
    assert len(pages) > 1
    assert len({one.path for one in found}) == len(found)
    assert [len(one.message.reasoning) for one in found if one.message.role == ROLE_ASSISTANT] == [450_000] * 6 + [0]


async def test_the_longest_prompt_comes_whole(services):
    services.script(DONE)
    await act(services, prompt="x" * PROMPT_BYTES_MAX)
    [prompt] = [one for one in await messages(services) if one.kind == run_message_pb2.MESSAGE_KIND_PROMPT]
    assert (len(text(prompt)), prompt.text_size_bytes) == (PROMPT_BYTES_MAX, 0)


async def test_a_run_that_there_is_not_has_no_messages(services):
    with pytest.raises(TurnwrightError) as refused:
        await messages(services, "none")
    assert refused.value.reason is Reason.RUN_NOT_FOUND
