"""Agents of other vendors, each a real process that speaks the Agent Client Protocol: what a task of theirs comes to."""

import asyncio
import json
import shutil
import sys
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from acp import schema
from turnwright.types.v1 import model_pb2
from turnwright.types.v1.command_record_pb2 import EFFECT_CLASS_OUTSIDE
from turnwright_values.types import State

from contract.executor.proposing import DONE, GO_ON
from contract.executor.tool_servers import stack
from contract.mcp.bridging import AGENT, bridging, text
from needs import needs
from services import SECRET
from turnwright_client import pending_proposals
from turnwright_mcp.agent_words import option_for, permission_text
from turnwright_mcp.connections import AGENT_HEADER
from turnwright_mcp.questions import BODY_CHARS_MAX

SCOPE = pytest.mark.asyncio(loop_scope="module")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

UNAVAILABLE, REFUSED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION
LATE = grpc.StatusCode.DEADLINE_EXCEEDED


def agent(kind, *more, **registration):
    """The registration of one."""
    return {"command": sys.executable, "args": [str(AGENT), kind, *map(str, more)], **registration}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def bridge(tmp_path_factory):
    async with bridging(tmp_path_factory.mktemp("bridge"), AGENT_HEADER) as made:
        yield made


PROMPT = json.dumps({"prompt": "Mend it."})


async def given(bridge, registration, **more):
    return await bridge.dispatch(registration, "delegate", arguments=PROMPT, **more)


@SCOPE
async def test_a_task_shows_its_steps_and_comes_back_with_answer_plan_and_cost(bridge):
    listed = await bridge.describe(agent("works", description="It mends."))
    [tool] = listed.tools
    assert (tool.name, tool.effect_class, tool.annotations.read_only) == ("delegate", EFFECT_CLASS_OUTSIDE, False)
    assert "It mends." in tool.description
    events = await given(bridge, agent("works"))
    shown = "".join(one.progress.text for one in events)
    assert shown.startswith("I look at it.\n- [x] Look\n- [ ] Mend\n\n[Read a.txt]\n[t: completed]\nAll is mended.")
    answer, plan, figures = events[-1].result.parts
    assert (answer.text, events[-1].result.status) == ("All is mended.", 0)
    assert plan.entry.body == "- [x] Look\n- [ ] Mend"
    found = json.loads(figures.structured)
    assert found == {"agent": "server", "stop_reason": "end_turn", "tokens": 42, "cost": 0.25, "currency": "USD"}


@SCOPE
@pytest.mark.parametrize(
    ("comment", "chosen"), [("", "yes"), ("always", "all"), ("reject", "no"), ("No", "no"), ("well done", "yes")]
)
async def test_a_permission_is_a_question_that_a_person_answers(bridge, tmp_path, comment, chosen):
    registration = agent("asks", tmp_path / "notes")
    call = f"log://asks/{chosen}{comment}"
    events = await given(bridge, registration, call_id=call)
    asked = events[-1].proposal
    assert "The agent server asks: Write a.txt, 1 (edit)" in asked.body
    assert "-before\n+after" in asked.body
    events = await given(bridge, registration, call_id=call, proposal_state=asked.state, comment=comment)
    assert events[-1].result.parts[0].text == "Written."
    prompted, answered = (tmp_path / "notes").read_text().splitlines()
    assert (prompted, json.loads(answered)["outcome"]["optionId"]) == ("prompted", chosen)


def test_what_options_are_called_does_not_change_what_an_answer_means():
    names = [("reject", "Reject", "allow_once"), ("always", "", "reject_once"), ("", "", "allow_always")]
    options = [schema.PermissionOption(option_id=one, name=name, kind=kind) for one, name, kind in names]
    assert [option_for(options, comment) for comment in ("reject", "always", "")] == ["always", "", "reject"]
    assert not option_for(options[::2], "reject")


def test_what_is_not_shown_of_a_question_is_told():
    part = schema.ContentToolCallContent(type="content", content=schema.TextContentBlock(type="text", text="x" * 1000))
    call = schema.ToolCallUpdate(tool_call_id="t", title="Write a.txt", content=[part] * 100)
    option = schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once")
    asked = schema.RequestPermissionRequest(session_id="s", tool_call=call, options=[option])
    shown = permission_text("server", asked)
    assert len(shown) < BODY_CHARS_MAX
    assert "It asks with 100" in shown
    assert shown.endswith("`Yes` (allow_once).")


@SCOPE
@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("dies", UNAVAILABLE, "its output has ended"),
        ("garbage", UNAVAILABLE, "not messages"),
        ("never-starts", REFUSED, "did not start within 1 s"),
        ("login", REFUSED, "Authentication required"),
        ("silent", LATE, ""),
    ],
)
async def test_one_that_misbehaves_ends_its_task_and_says_why(bridge, tmp_path, kind, code, words):
    notes = tmp_path / "notes"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await given(
            bridge, agent(kind, notes, start_s=1 if kind == "never-starts" else 30), timeout_s=30 if words else 2
        )
    assert refused.value.code() is code
    assert words in refused.value.details()
    assert notes.exists() == (code is not REFUSED)


@SCOPE
async def test_a_flood_is_cut_and_what_is_no_message_is_passed_over(bridge):
    events = await given(bridge, agent("floods"))
    assert len(events[-1].result.parts[0].text) == 512 * 1024


@SCOPE
async def test_questions_beyond_the_bound_are_cancelled(bridge, tmp_path):
    notes = tmp_path / "notes"
    registration = agent("asks-at-once", notes)
    events = await given(bridge, registration, call_id="log://at-once")
    # The first of a thousand wait, and the last does not, after which the agent ends.
    while len(notes.read_text().splitlines()) < 2:  # noqa: ASYNC110 - nothing else tells
        await asyncio.sleep(0.05)
    while events[-1].HasField("proposal"):
        events = await given(bridge, registration, call_id="log://at-once", proposal_state=events[-1].proposal.state)
    assert json.loads(notes.read_text().splitlines()[1]) == {"outcome": {"outcome": "cancelled"}}


@SCOPE
async def test_a_question_of_great_length_is_refused(bridge, tmp_path):
    # Nobody is asked, and so nothing of it waits.
    events = await given(bridge, agent("asks-at-length", tmp_path / "notes"))
    assert text(events).strip() == "It was refused."
    assert json.loads((tmp_path / "notes").read_text().splitlines()[1])["code"] == -32600


@SCOPE
async def test_an_error_of_the_agent_is_the_end_of_the_task(bridge):
    events = await given(bridge, agent("refuses"))
    assert (events[-1].result.status, text(events)) == (502, "server: No credit is left.")


@SCOPE
async def test_a_project_names_no_agents(bridge):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await given(bridge, agent("works"), shared=False)
    assert "the operator's to register" in refused.value.details()


def processes(words):
    """The processes whose command line has these words."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if words in line:
                found.append(line)
    return found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def services(tmp_path_factory):
    """A stack whose operator has named agents: some of ours, and one that works in the same deployment."""
    root = tmp_path_factory.mktemp("runs")
    ours = {
        "command": sys.executable,
        "args": ["-m", "turnwright_cli", "acp", "--server", f"unix:{root}/executor.sock"],
    }
    ours |= {"env": {"TURNWRIGHT_TOKEN": SECRET, "TURNWRIGHT_HOME": str(root / "home")}}
    named = {
        "asks": {"acp": agent("asks", root / "asks")},
        "for_ever": {"acp": agent("asks-for-ever", root / "for-ever")},
        "ours": {"acp": {**ours, "args": [*ours["args"], "--model", "helper"]}, "timeout_s": 120},
        "elsewhere": {"acp": agent("works"), "projects": ["another"]},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWRIGHT_SH_SANDBOX", "limits")
        async with stack(root, patch, named) as made:
            yield made


async def told(services, run, reply, mode="act", **settings):
    """A task whose first reply is this."""
    services.script(f"{reply}{GO_ON}", DONE, name=run)
    await services.client.set_model(model_pb2.Model(alias=run, vendor_model=f"scripted/{run}"))
    return await getattr(services, mode)(run=run, model=run, **settings)


async def waiting(services, run):
    """The proposal of a run."""
    async for _ in services.client.watch(services.project, run):
        if found := await pending_proposals(services.client, services.project, run):
            return found[0]
    raise AssertionError("the watch has ended")


async def accepted(services, run, start):
    """The question of an agent that may start."""
    await services.client.resolve(services.project, run, start.path, accept=True)
    async for _ in services.client.watch(services.project, run):
        record = await services.entry(start.path, run)
        assert not State(record.state).is_settled, record.body
        if record.state == State.PROPOSED and record.body != start.body:
            return await waiting(services, run)
    raise AssertionError("the watch has ended")


async def record_of(services, run):
    """The record of the first command."""
    found = [one async for one in services.client.list_entries(services.project, run, "log://turn_1/**")]
    return next(one for one in found if one.record.HasField("ordinal") and "delegate" in one.path)


@SCOPE
async def test_a_task_for_another_agent_is_asked_about_and_so_is_what_it_wants(services):
    queued = await told(services, "a", '<delegate agent="asks" name="mender">Mend it.</delegate>', yolo=False)
    start = await waiting(services, "a")
    assert "call asks.delegate" in start.body
    assert "Mend it." in start.body
    asked = await accepted(services, "a", start)
    assert "The agent asks asks: Write a.txt, 1 (edit)" in asked.body
    inbox = [one.proposal.path async for one in services.client.list_proposals(services.project)]
    assert asked.path in inbox
    await services.client.resolve(services.project, "a", asked.path, accept=True, comment="always")
    assert (await services.until(queued)).status == 200
    record = await services.entry(asked.path, "a")
    assert record.body.startswith("Written.")
    prompted, answered = (services.root / "asks").read_text().splitlines()
    assert (prompted, json.loads(answered)["outcome"]["optionId"]) == ("prompted", "all")


@SCOPE
async def test_what_is_rejected_ends_the_agent(services):
    queued = await told(services, "b", '<delegate agent="asks">Mend it.</delegate>', yolo=False)
    start = await waiting(services, "b")
    asked = await accepted(services, "b", start)
    words = f"acp_agent.py asks {services.root}/asks"
    assert processes(words)
    await services.client.resolve(services.project, "b", asked.path, accept=False, comment="Leave it.")
    assert (await services.until(queued)).status == 200
    async with asyncio.timeout(60):
        while processes(words):  # noqa: ASYNC110 - a process tells nothing
            await asyncio.sleep(0.05)


@SCOPE
async def test_an_agent_that_asks_for_ever_is_not_asked_for_ever(services):
    queued = await told(services, "c", '<delegate agent="for_ever">Mend it.</delegate>')
    assert (await services.until(queued)).status == 200
    record = await record_of(services, "c")
    assert record.outcome == "asked_again:500"
    noted = (services.root / "for-ever").read_text().splitlines()
    assert noted.count("prompted") == 1


@SCOPE
@pytest.mark.parametrize(
    ("run", "name", "mode", "more"),
    [
        ("d", "nobody", "act", {}),
        ("e", "elsewhere", "act", {}),
        ("f", "asks", "ask", {}),
        ("g", "asks", "act", {"no_web": True}),
    ],
)
async def test_who_is_not_there_is_not_started(services, run, name, mode, more):
    queued = await told(services, run, f'<delegate agent="{name}">Mend it.</delegate>', mode, **more)
    assert (await services.until(queued)).status == 200
    record = await record_of(services, run)
    assert record.outcome in ("not_found:404", "permission:403")


@SCOPE
async def test_this_agent_is_another_ones_agent(services):
    services.script(f'<set path="made.txt">by it</set>{GO_ON}', f"It is made.{DONE}", name="helper")
    await services.client.set_model(model_pb2.Model(alias="helper", vendor_model="scripted/helper"))
    queued = await told(services, "h", '<delegate agent="ours">Make it.</delegate>', yolo=False)
    start = await waiting(services, "h")
    asked = await accepted(services, "h", start)
    assert "made.txt" in asked.body
    await services.client.resolve(services.project, "h", asked.path, accept=True)
    assert (await services.until(queued)).status == 200
    assert "It is made." in (await services.entry(asked.path, "h")).body
    assert (services.files / "made.txt").read_text() == "by it"


@needs("bubblewrap", "install bwrap", there=shutil.which("bwrap"))
@pytest.mark.asyncio
async def test_what_an_agent_reads_and_writes_is_confined_to_the_project(tmp_path):
    readable = ":".join((str(AGENT.parent), sys.prefix, sys.base_prefix))
    async with bridging(tmp_path, AGENT_HEADER, sh_sandbox="bubblewrap", sh_readable=readable) as made:
        (tmp_path / "beside.txt").write_text("not to be seen")
        events = await given(made, agent("reads"))
        found = json.loads(events[-1].result.parts[0].text)
        assert found["inside.txt"] == "done"
        assert found["beside.txt"] != "done"
        assert not (tmp_path / "mine.txt").exists()
        # Nothing is read for it either.
        assert (found["../beside.txt"], found["/etc/shadow"]) == (-32601, -32601)
