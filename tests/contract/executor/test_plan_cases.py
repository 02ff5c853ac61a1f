"""The known cases of plan tools, each run: those that we do as they say, and those where a row of ours wins.

Rows RP01-RP04, RP07, RH04.
"""

from __future__ import annotations

import json

import pytest
from turnwright.types.v1 import plan_pb2, settings_pb2

from cases import NEEDS_SHARED, load_cases
from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
TEXTS = {"set_plan": "content", "update_plan": "note"}

ALL = {case["id"]: case for case in load_cases("refact/plan.jsonl")}
CALLS = {name: case for name, case in ALL.items() if "calls" in case["input"]}
ROW_WINS = {
    "set_plan_twice_error": ("RP01: a plan is replaced", ["", ""], 2, 0),
    "set_plan_twice_same_batch_error": ("RP01: a plan is replaced", ["", ""], 2, 0),
    "set_plan_relative_path": ("a plan is given as the body; there is no argument path", ["invalid:400"], 0, 0),
    "set_plan_not_md": ("a plan is given as the body; there is no argument path", ["invalid:400"], 0, 0),
    "update_plan_bool_summary": ("a delta has no summary; attributes that there are not say nothing", [""], 1, 1),
    "update_plan_oversized": ("RP02: over the cap is an error, and nothing is stored", ["too_large:413"], 1, 0),
}
"""Why, our outcomes, and the version and the deltas that are there afterwards; version 0: no plan."""
CUT = {name for name in ALL if name.startswith(("truncate_", "delta_payload_"))}
"""RP02: what is too long is refused whole, in bytes of UTF-8, and never cut; so no payload says what was kept."""
OPS = {"install_three_versions", "deltas_in_order_only_plan_delta", "mode_switch_event", "reopen_preserves_plan"}
NOT_OURS = {"plan_without_version_ignored": "the store gives every plan a version: there is none without"}


def said(services, turn=1):
    """The plan commands of a turn in their order: tool, outcome, text."""
    return [
        (one.path.split("/")[3], one.outcome, one.body)
        for one in sorted(services.view().entries.values(), key=lambda one: one.position)
        if one.path.startswith(f"log://turn_{turn}/") and "_plan/" in one.path
    ]


async def plan_of(services, version=0):
    return await services.client.get_plan(services.project, "r", version=version)


def text_of(call) -> str:
    said = call["args"].get(TEXTS.get(call["tool"], ""), "")
    return said if isinstance(said, str) else said["$repeat"][0] * said["$repeat"][1]


def command_of(call) -> str:
    texts = {name: value for name, value in call["args"].items() if name != TEXTS.get(call["tool"])}
    attributes = "".join(f' {name}="{json.dumps(value).strip(chr(34))}"' for name, value in texts.items())
    return f"<{call['tool']}{attributes}>{text_of(call)}</{call['tool']}>"


async def carried_out(services, case) -> list[tuple[str, str, str]]:
    """What the calls of a case come to, behind the plan and the deltas that there were before."""
    calls = [call for call in case["input"]["calls"] if "tool" in call]
    before = "".join(f"<set_plan>{one['content']}</set_plan>" for one in case["input"]["state"]["plans"])
    before += "".join(f"<update_plan>{one['content']}</update_plan>" for one in case["input"]["state"]["deltas"])
    services.script(f"{before}{''.join(map(command_of, calls))}{GO_ON}", DONE)
    await services.until(await services.act())
    return said(services)[-len(calls) :]


@pytest.mark.parametrize("case", [CALLS[name] for name in CALLS if name not in ROW_WINS], ids=lambda case: case["id"])
async def test_a_case_of_plan_tools(services, case) -> None:
    """Commands of one batch, and the results that they have; our words for them."""
    found = await carried_out(services, case)
    for (tool, outcome, text), wanted in zip(found, filter(None, case["expected"]["results"]), strict=True):
        if "error" in wanted:
            assert (tool, outcome) == ("update_plan", "not_found:404")
        elif "plan" in wanted:
            assert text == wanted["plan"]["content"]
            assert len((await plan_of(services)).deltas) == wanted["plan"]["delta_count"]
        else:
            number = wanted.get("seq") or wanted.get("version")
            assert (outcome, str(number) in text) == ("", True)


@pytest.mark.parametrize("name", ROW_WINS)
async def test_a_case_where_a_row_wins(services, name) -> None:
    why, outcomes, version, deltas = ROW_WINS[name]
    found = await carried_out(services, CALLS[name])
    assert [outcome for _, outcome, _ in found] == outcomes, why
    if not version:
        with pytest.raises(TurnwrightError) as missing:
            await plan_of(services)
        assert missing.value.reason is Reason.ENTRY_NOT_FOUND
        return
    plan = await plan_of(services)
    assert (plan.version, len(plan.deltas)) == (version, deltas), why


@pytest.mark.parametrize("name", sorted(name for name in CUT if "chars" in ALL[name]["input"]))
async def test_what_the_cases_cut_is_refused_and_what_fits_is_kept_whole(services, name) -> None:
    asked = ALL[name]["input"]
    text, run = "a" * asked["chars"], (services.project, "r")
    await services.client.create_run(*run, settings_pb2.RunSettings(model="m"))
    await services.client.set_plan(*run, plan_pb2.Plan(body="As it was."))
    is_body = asked["op"] == "plan_body"
    change = (
        services.client.set_plan(*run, plan_pb2.Plan(body=text)) if is_body else services.client.update_plan(*run, text)
    )
    if asked["chars"] > asked.get("cap", 16_384):
        with pytest.raises(TurnwrightError) as error:
            await change
        assert error.value.reason is Reason.LIMIT_EXCEEDED
        plan = await plan_of(services)
        assert (plan.version, plan.body, len(plan.deltas)) == (1, "As it was.", 0)
        return
    made = await change
    assert (made.body if is_body else made.deltas[0].text) == text


async def test_three_versions_are_installed(services) -> None:
    case, run = ALL["install_three_versions"], (services.project, "r")
    await services.client.create_run(*run, settings_pb2.RunSettings(model="m"))
    made = [await services.client.set_plan(*run, plan_pb2.Plan(body=body)) for body in case["input"]["bodies"]]
    assert [plan.version for plan in made] == case["expected"]["versions"]
    assert (await plan_of(services)).version == case["expected"]["current_version"]
    history = case["expected"]["history_versions_desc"]
    assert [(await plan_of(services, version)).body for version in history] == case["input"]["bodies"][::-1]


async def test_only_what_was_added_to_a_plan_is_a_delta(services) -> None:
    case = ALL["deltas_in_order_only_plan_delta"]
    commands = {
        "plan_delta": "<update_plan>{}</update_plan>",
        "system_notice": '<set_plan plan_id="beside">{}</set_plan>',
    }
    told = "".join(commands[kind].format(text) for kind, text in case["input"]["events"])
    services.script(f"<set_plan>base</set_plan>{told}{GO_ON}", DONE)
    await services.until(await services.act())
    assert [delta.text for delta in (await plan_of(services)).deltas] == case["expected"]["contents"]


async def test_another_mode_is_an_event(services) -> None:
    """RH04: by our names of the modes, and with the loop that began in it."""
    case = ALL["mode_switch_event"]
    services.script(DONE)
    await services.until(await services.ask())
    services.script(DONE)
    await services.until(await services.act())
    [event] = [one for path, one in services.view().entries.items() if "/mode_switch/" in path]
    told = json.loads(event.attributes_json)["event"]
    assert (told["subkind"], told["payload"]["from"], told["payload"]["to"]) == ("mode_switch", "ask", "act")
    assert set(case["expected"]["event"]["payload"]) - {"reason"} <= set(told["payload"])


async def test_a_plan_is_kept_when_everything_is_opened_again(own_services) -> None:
    case = ALL["reopen_preserves_plan"]
    (base, delta) = (message["content"] for message in case["input"]["messages"])
    own_services.script(f"<set_plan>{base}</set_plan><update_plan>{delta}</update_plan>{GO_ON}", DONE)
    await own_services.until(await own_services.act())
    for name in ("executor", "assembler", "provider", "store"):
        await own_services.restart(name)
    plan = await plan_of(own_services)
    assert [plan.body] == case["expected"]["plans"]
    assert [one.text for one in plan.deltas] == case["expected"]["deltas"]


@NEEDS_SHARED
async def test_every_case_is_run_or_named() -> None:
    assert ALL.keys() == CALLS.keys() | CUT | OPS | NOT_OURS.keys()
    assert CALLS.keys() > ROW_WINS.keys()
