"""Plugins that edit prompts, from their functions to the bytes that a vendor gets. OM22, OM25, OM26, OM29, OM31, OM34-OM36."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from turnwright.types.v1 import message_pb2, prompt_edit_pb2, settings_pb2, turn_pb2

from log_lines import logged
from services import Services, running
from sse_server import SseServer, chat
from strict_vendors import STRICT, Reply, serving
from turnwright_core.chat.prompt_edits import PromptEdit, append, append_to
from turnwright_core.wire.prompt_edits import edit_to_pb, edits_from_pb

pytestmark = pytest.mark.asyncio

TRANSCRIPT = settings_pb2.ASSEMBLY_TRANSCRIPT
PACKET = settings_pb2.ASSEMBLY_PACKET
DONE = '<update status="200">Done.</update>'
PAGE = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()
EXAMPLE = PAGE.partition("## Prompts")[2].partition("```python\n")[2].partition("```")[0]


async def act(services: Services, *edits: PromptEdit, prompt: str = "Do it.", assembly: int = TRANSCRIPT, **more: Any):
    wanted = settings_pb2.LoopSettings(
        model="m", yolo=True, no_repo=True, assembly=assembly, edits=map(edit_to_pb, edits), **more
    )
    return await services.until(await services.client.act(services.project, prompt, run="r", settings=wanted))


def said(server: SseServer) -> list[list[tuple[str, str]]]:
    """What was sent, without the system message."""
    return [[(one["role"], one["content"]) for one in request.json["messages"][1:]] for request in server.requests]


async def turns(services: Services):
    """The turns of the run, the first one first."""
    run = await services.client.get_run(services.project, "r", turns_max=100)
    return sorted(run.turns, key=lambda turn: turn.number)


TWO = """
SEEN = []

async def first(prompt, context):
    SEEN.append((context.project, context.run, context.turn, context.loop, context.agent, context.model, context.kind))
    prompt.append("user", ["ONE"])


def second(prompt, context):
    SEEN.append([(one.id, one.role.value, one.text) for one in prompt.messages])
    prompt.append_to("last-user", "TWO")


def register(registry):
    registry.prompt(first)
    registry.prompt(second)
    registry.prompt(lambda prompt, context: prompt.append("user", "NEVER"), kinds=["compaction", "title"])
"""


async def test_plugins_edit_in_the_order_of_registration_after_the_client(plugin, tmp_path, monkeypatch, over_http):
    # OM26, OM27, OM28, OM35, OM36
    async with over_http(chat("Done."), chat("Really.")) as server:
        monkeypatch.setenv("TURNWRIGHT_PROMPT", plugin("two_editors", TWO))
        async with running(tmp_path) as services:
            loop = await act(services, append("user", "CLIENT"))
            [first] = await turns(services)
            await services.stop("assembler")
            monkeypatch.setenv("TURNWRIGHT_PROMPT", "none")
            await services.start("assembler")
            later = await act(services, prompt="And now?")
    assert (loop.status, later.status) == (200, 200), loop.reason
    told, messages = sys.modules["two_editors"].SEEN
    assert told == (services.project, "r", 1, 1, None, "openai/m", "primary")
    assert messages == [("prompt://1", "user", "Do it."), ("", "user", "CLIENT"), ("", "user", "ONE")]
    requests = said(server)
    assert requests[0] == [("user", "Do it.\n\nCLIENT\n\nONE\n\nTWO")]
    # Without the plugin nothing is left of it.
    assert requests[1] == [("user", "Do it."), ("assistant", "Done."), ("user", "And now?")]
    assert [edit.plugin for edit in first.result.edits] == ["", "two_editors:register", "two_editors:register"]


async def test_the_edits_of_a_turn_make_its_prompt_again_without_the_plugin(plugin, tmp_path, monkeypatch, over_http):
    # OM29, OM31
    counting = """
    COUNT = iter(range(100))

    def register(registry):
        registry.prompt(lambda prompt, context: prompt.append("user", f"number {next(COUNT)}"))
    """
    for assembly in (TRANSCRIPT, PACKET):
        async with over_http(chat("Done." if assembly == TRANSCRIPT else DONE)) as server:
            monkeypatch.setenv("TURNWRIGHT_PROMPT", plugin("counting", counting))
            root = tmp_path / str(assembly)
            root.mkdir()
            async with running(root) as services:
                assert (await act(services, assembly=assembly)).status == 200
                [turn] = await turns(services)
                monkeypatch.setenv("TURNWRIGHT_PROMPT", "none")
                await services.restart("assembler")
                again = await services.client.explain_packet(services.project, "r", 1)
        assert said(server)[0][-1][1].endswith("number 0")
        assert [edit.plugin for edit in turn.result.edits] == ["counting:register"]
        assert again.digest == again.stored_digest == turn.result.packet_digest, again.gaps


FAULTY = """
import asyncio
import time

CAUGHT = []


def raises(prompt, context):
    prompt.append("user", "x")
    raise RuntimeError("a secret")


async def hangs(prompt, context):
    await asyncio.sleep(60)


def returns(prompt, context):
    return [{"role": "user", "content": "x"}]


def exits(prompt, context):
    raise SystemExit(1)


def role(prompt, context):
    prompt.append("tool", "x")


def parts(prompt, context):
    prompt.append("user", [{"text": "x", "id": "m1"}])


def anchor(prompt, context):
    prompt.append("user", "x")
    prompt.insert_after("prompt://9", "user", "y")


def caught(prompt, context):
    try:
        prompt.append_to("last-assistant", "x")
    except Exception as error:
        CAUGHT.append(error)
    prompt.append("user", "y")


def shape(prompt, context):
    prompt.append("assistant", "x")


def much(prompt, context):
    prompt.append("user", "x" * 2**20)


def path(prompt, context):
    from turnwright_assembler.plugins import Image

    prompt.append("user", Image(path="../../etc/passwd"))


def changes(prompt, context):
    prompt.messages[0].message.parts[0].text = "x"
"""
FAILED = "plugin_failed: The plugin faulty:{} failed while it edited the prompt (error "
FAULTS = {
    "raises": FAILED,
    "hangs": FAILED,
    "returns": FAILED,
    "exits": FAILED,
    "changes": FAILED,
    "role": "invalid_field: The plugin faulty:{}: 'tool' is not the role of an added message",
    "parts": "invalid_field: The plugin faulty:{}: A part is a text or an image, not dict",
    "path": "invalid_field: The plugin faulty:{}: ../../etc/passwd is not an image of the run",
    "anchor": "prompt_message_unknown: edits[2] of the plugin faulty:{} (insert_after): there is no message prompt://9",
    "caught": "prompt_target_missing: edits[1] of the plugin faulty:{} (append_to): there is no message of the assistant",
    "shape": "prompt_shape_refused: The edits make a prompt that cannot be sent: it ends with a message of the assistant",
    "much": "limit_exceeded: The plugin faulty:{}: edits has 1048580 bytes; the limit is 65536.",
}


@pytest.mark.parametrize("assembly", [TRANSCRIPT, PACKET], ids=["transcript", "packet"])
@pytest.mark.parametrize("name", FAULTS)
async def test_what_a_plugin_cannot_do_ends_the_loop_with_its_name_and_nothing_is_sent(
    plugin, tmp_path, monkeypatch, name, assembly
):
    # OM21, OM22, OM34
    text = FAULTY + f"\n\ndef {name}_(registry):\n    registry.prompt({name})\n"
    module = plugin("faulty", text).partition(":")[0]
    monkeypatch.setenv("TURNWRIGHT_PROMPT", f"{module}:{name}_")
    if name == "hangs":
        monkeypatch.setenv("TURNWRIGHT_SECTION_DEADLINE_S", "0.5")
    async with running(tmp_path) as services:
        services.script(DONE)
        with logged() as lines:
            loop = await act(services, append("user", "sent"), assembly=assembly)
        messages = [one async for one in services.client.list_messages(services.project, "r")]
        monkeypatch.setenv("TURNWRIGHT_PROMPT", "none")
        await services.restart("assembler")
        later = await act(services, prompt="Again.", assembly=assembly)
    wanted = FAULTS[name].format(f"{name}_")
    assert (loop.status, loop.reason[: len(wanted)]) == (500, wanted)
    assert [one.path for one in messages if one.path.startswith("assistant://")] == []
    # The run is none the worse for it.
    assert later.status == 200
    if wanted.startswith("plugin_failed"):
        found = re.search(r"error ([0-9a-f]{16})\)", loop.reason)
        assert found
        [line] = [one for one in lines if one["event"] == "plugin_failed"]
        assert (line["error_id"], line["plugin"], line["part"]) == (found[1], f"faulty:{name}_", "prompt")
        assert "secret" not in loop.reason


async def test_a_plugin_may_name_the_messages_of_a_packet_and_of_a_transcript(plugin, tmp_path, monkeypatch, over_http):
    # OM20: in a packet the loop's prompt stands for the message with the sections
    naming = """
    def register(registry):
        registry.prompt(lambda prompt, context: prompt.insert_before(prompt.messages[0].id, "user", "BEFORE"))
    """
    async with over_http(chat("Done."), chat(DONE)) as server:
        monkeypatch.setenv("TURNWRIGHT_PROMPT", plugin("naming", naming))
        async with running(tmp_path) as services:
            assert (await act(services)).status == 200
            assert (await act(services, assembly=PACKET)).status == 200
    transcript, packet = said(server)
    assert transcript == [("user", "BEFORE\n\nDo it.")]
    assert [one[1].partition("\n")[0] for one in packet] == ["BEFORE"]
    assert packet[0][1].startswith("BEFORE\n\n<prompt")


async def test_the_example_of_the_documentation_reminds_the_model(plugin, tmp_path, monkeypatch, over_http):
    async with over_http(chat("Done.")) as server:
        monkeypatch.setenv("TURNWRIGHT_PROMPT", plugin("reminder", EXAMPLE))
        async with running(tmp_path) as services:
            loop = await act(services, prompt="Fix it.")
    assert loop.status == 200, loop.reason
    [[(_, content)]] = said(server)
    assert content.startswith("Fix it.\n\n")
    assert len(content) > len("Fix it.\n\n")


async def test_a_plugin_that_edits_prompts_takes_no_part_in_packets(plugin, tmp_path, monkeypatch):
    # OM31: its edits are recorded, so that a packet is the same whatever its version
    monkeypatch.setenv("TURNWRIGHT_PROMPT", plugin("two_editors", TWO))
    async with running(tmp_path) as services:
        services.script("<think>Hm.</think>", DONE)
        loop = await act(services, assembly=PACKET)
        reply = json.loads((await services.entry("assistant://1")).attributes_json)
    assert (loop.status, loop.turns) == (200, 2)
    assert "two_editors" not in reply["call"]["render_version"]
    assert reply["call"]["room_chars"] is not None
    assert (reply["call"]["is_edited"], "edits" in reply["call"]) == (True, False)


async def test_a_client_cannot_speak_for_a_plugin(services):
    edit = prompt_edit_pb2.PromptEdit(
        append=prompt_edit_pb2.PromptMessage(role=message_pb2.ROLE_USER, parts=[message_pb2.Part(text="x")]), plugin="p"
    )
    settings = settings_pb2.LoopSettings(model="m", edits=[edit])
    with pytest.raises(Exception, match="plugin"):
        await services.client.act(services.project, "Do it.", run="r", settings=settings)
    assert edits_from_pb([edit])[0].plugin == "p"
    assert append_to("last-user", "x").plugin == ""


async def test_a_summary_is_edited_by_plugins_that_ask_for_it_and_by_nobody_else(plugin, tmp_path, monkeypatch):
    # OM36: in its own turn; the client's edits are for the turns of the task
    by_kind = """
    KINDS = []

    def register(registry):
        registry.prompt(lambda prompt, context: prompt.append("user", "PRIMARY"))
        registry.prompt(compact, kinds=["compaction"])

    def compact(prompt, context):
        KINDS.append(context.kind)
        prompt.append("user", "COMPACT")
    """

    def script(number: int) -> Reply:
        if "about to be shortened" in json.dumps(vendor.bodies[number]["messages"]):
            return Reply("I read all, and found nothing.")
        return Reply("", [("get", {"path": f"f{number % 20}.txt"})]) if number < 20 else Reply("All is read.")

    monkeypatch.setenv("TURNWRIGHT_PROMPT", plugin("by_kind", by_kind))
    vendor = STRICT["chat"](script)
    async with SseServer([vendor] * 60) as server:
        serving(monkeypatch, tmp_path, "chat", server.url)
        async with running(tmp_path) as services:
            for number in range(20):
                (services.files / f"f{number}.txt").write_text(f"{number} is read. " + "some words of it, " * 150)
            limits = settings_pb2.RunSettings(model="m", context_limit=16_384)
            wanted = settings_pb2.LoopSettings(model="m", yolo=True, assembly=TRANSCRIPT, summaries=True)
            queued = await services.client.act(
                services.project,
                "Read all.",
                run="r",
                settings=wanted,
                run_settings=limits,
                edits=[append("user", "CLIENT")],
            )
            loop = await services.until(queued)
            summaries = [one for one in await turns(services) if one.request.kind == turn_pb2.REQUEST_KIND_COMPACTION]
    assert (vendor.refusals, loop.status) == ([], 200), loop.reason
    found = {"summary": set(), "turn": set()}
    for body in vendor.bodies:
        text = json.dumps(body["messages"])
        words = tuple(word for word in ("CLIENT", "PRIMARY", "COMPACT") if word in text)
        found["summary" if "about to be shortened" in text else "turn"].add(words)
    assert found == {"summary": {("COMPACT",)}, "turn": {("CLIENT", "PRIMARY")}}
    assert set(sys.modules["by_kind"].KINDS) == {"compaction"}
    assert [[edit.plugin for edit in one.result.edits] for one in summaries] == [["by_kind:register"]] * len(summaries)
