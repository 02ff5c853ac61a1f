"""What commands are told when their loop ends from outside its turns: every ending, stage and effect class.

Told `cancelled` means that it did not happen. C63; RC06.
"""

import hashlib
from datetime import timedelta

import pytest
from turnwright.types.v1 import budget_pb2
from turnwright_values.types import (
    ClientToolEffect,
    CommandEffect,
    DecisionKind,
    FileEdit,
    FileEffect,
    QuestionEffect,
    State,
)

from contract.executor.test_aborts import act_slowly
from contract.executor.test_recovery import LIFE, left, resolve
from services import running
from sse_server import SseServer, chat
from turnwright_core.decisions import Decision
from turnwright_executor.domain.effects import CallEffect, EffectClass

pytestmark = pytest.mark.asyncio

PURE, IDEMPOTENT, OUTSIDE = EffectClass.PURE, EffectClass.IDEMPOTENT, EffectClass.OUTSIDE
HAPPENED = CommandEffect("echo happened >> effects.txt", 5.0)
CALL = CallEffect({"n": 1})


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_LEASE_GRACE_S", "0.1")


def hash_of(text):
    return hashlib.sha256(text.encode()).hexdigest()


def edits(*files):
    """A change of these files from `old` to `new`."""
    return FileEffect(tuple(FileEdit(file, hash_of("old\n"), "new\n", "") for file in files))


def said(answer):
    return Decision(DecisionKind.ACCEPTED, answer, "alice", 1)


ASKED = {"effect": QuestionEffect("?"), "interrupted": HAPPENED, "effect_class": OUTSIDE}
MARKED = {"is_dispatched": True, "key": "0" * 16}

CANCELLED, DONE = (State.CANCELLED, None), (State.RESOLVED, "")
UNKNOWN, STOPPED = (State.FAILED, "indeterminate:500"), (State.FAILED, "stopped:499")

# What the ledger has of a command, and what is told of it: (the state, the outcome; None: the ending's).
COMMANDS = {
    **{f"recorded-{kind}": ({"effect_class": kind}, CANCELLED) for kind in EffectClass},
    **{
        f"proposed-{kind}": ({"effect_class": kind, "effect": CALL, "state": State.PROPOSED}, CANCELLED)
        for kind in EffectClass
    },
    **{
        f"accepted-{kind}": ({"effect_class": kind, "effect": CALL, "decision": said("")}, CANCELLED)
        for kind in EffectClass
    },
    "marked-pure": ({"effect_class": PURE, "effect": CALL, **MARKED}, CANCELLED),
    "marked-outside": ({"effect_class": OUTSIDE, "effect": HAPPENED, **MARKED}, UNKNOWN),
    "marked-outside-call": ({"effect_class": OUTSIDE, "effect": CALL, **MARKED}, UNKNOWN),
    "marked-of-a-later-release": ({"effect_class": OUTSIDE, **MARKED}, UNKNOWN),
    "marked-idempotent-call": ({"effect_class": IDEMPOTENT, "effect": CALL, **MARKED}, UNKNOWN),
    "files-untouched": ({"effect_class": IDEMPOTENT, "effect": edits("old.txt"), **MARKED}, CANCELLED),
    "files-done": ({"effect_class": IDEMPOTENT, "effect": edits("new.txt"), **MARKED}, DONE),
    "files-in-part": ({"effect_class": IDEMPOTENT, "effect": edits("new.txt", "old.txt"), **MARKED}, STOPPED),
    "files-of-somebody": ({"effect_class": IDEMPOTENT, "effect": edits("other.txt"), **MARKED}, STOPPED),
    "asked": ({**ASKED, "state": State.PROPOSED}, UNKNOWN),
    "answered-done": ({**ASKED, "decision": said("mark done")}, DONE),
    "answered-failed": ({**ASKED, "decision": said("mark failed")}, UNKNOWN),
    "answered-retry": ({**ASKED, "decision": said("retry")}, UNKNOWN),
    "never-answered": (
        {
            **ASKED,
            "state": State.CANCELLED,
            "outcome": "expired:499",
            "decision": Decision(DecisionKind.EXPIRED, time_ms=1),
        },
        UNKNOWN,
    ),
    "handed-to-a-client": ({"effect_class": PURE, "effect": ClientToolEffect(), "state": State.PROPOSED}, UNKNOWN),
    "returned-by-a-client": (
        {
            "effect_class": PURE,
            "effect": ClientToolEffect(),
            "decision": Decision(DecisionKind.ACCEPTED, "", "ide", 1, {"": "It did."}),
        },
        DONE,
    ),
}


async def abort(it):
    await it.run.client.call("AbortRun", **it.run.address)
    return await it.gone()


async def lose(it):
    """The latest owner that may be lost is lost."""
    return await it.taken_up()


async def lose_workspace(it):
    it.services.files.rename(it.services.files.with_name("away"))
    return await it.gone()


ENDINGS = {
    "abort": (abort, {}, (499, "aborted")),
    "crash_loop": (lose, {"claim": {"lease_duration": LIFE}, "turn_losses_max": 1}, (500, "crash_loop")),
    "failure": (lose_workspace, {}, (500, "workspace_unavailable")),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_every_command_is_told_what_became_of_it(tmp_path, ending):
    end, settings, (status, word) = ENDINGS[ending]
    async with left(tmp_path, **settings) as it:
        for name, text in (("old.txt", "old\n"), ("new.txt", "new\n"), ("other.txt", "somebody's\n")):
            (it.services.files / name).write_text(text)
        await it.reply()
        paths = {
            name: await it.record("act", {"n": name}, target=name, ordinal=number, **kept)
            for number, (name, (kept, _)) in enumerate(COMMANDS.items())
        }
        loop = await end(it)
        assert (loop.status, loop.reason.partition(":")[0]) == (status, word)
        told = {name: await it.state(path) for name, path in paths.items()}
        expected = {
            name: (state, f"{word}:{status}" if outcome is None else outcome)
            for name, (_, (state, outcome)) in COMMANDS.items()
        }
        if ending == "failure":
            # Nobody can look at the files.
            expected |= {name: UNKNOWN for name in expected if name.startswith("files-")}
        assert told == expected
        bodies = {name: (await it.services.entry(path)).body for name, path in paths.items()}
        assert {name for name, body in bodies.items() if body.startswith("Not carried out")} == {
            name for name, (state, _) in told.items() if state is State.CANCELLED
        }
        assert {name for name, body in bodies.items() if "Look whether it happened" in body} == {
            name for name, one in told.items() if one == UNKNOWN and name != "answered-failed"
        }
        assert it.effects == []


WAITING = ("asked", "handed-to-a-client")
"""Somebody can still say what became of these."""


async def test_what_has_begun_behind_a_command_that_failed_since_is_told_like_at_an_ending(tmp_path):
    # A client that runs a command tells its end later: what came behind it may have happened by then.
    async with left(tmp_path) as it:
        for name, text in (("old.txt", "old\n"), ("new.txt", "new\n"), ("other.txt", "somebody's\n")):
            (it.services.files / name).write_text(text)
        await it.reply()
        await it.record("act", target="first", state=State.FAILED)
        commands = {name: one for name, one in COMMANDS.items() if name not in WAITING}
        paths = {
            name: await it.record("act", {"n": name}, target=name, ordinal=number, **kept)
            for number, (name, (kept, _)) in enumerate(commands.items(), 1)
        }
        await it.gone()
        told = {name: await it.state(path) for name, path in paths.items()}
        assert told == {
            name: (state, "aborted:499" if outcome is None else outcome)
            for name, (_, (state, outcome)) in commands.items()
        }
        assert it.effects == []


async def test_whoever_is_asked_about_a_command_behind_one_that_failed_answers_first(tmp_path):
    async with left(tmp_path, yolo=False, indeterminate="ask") as it:
        await it.reply()
        await it.record("act", target="first", state=State.FAILED)
        path = await it.sh("a", ordinal=1, is_dispatched=True)
        assert (await it.gone()).status == 202
        await resolve(it, path, "mark done")
        await it.services.client.wait_loop(it.services.project, "r", 1)
        assert await it.state(path) == DONE


# ---- Its own owner stops a command


async def aborted(services, queued):
    await services.client.abort(services.project, "r")
    return await services.until(queued)


async def out_of_time(services, queued):
    return await services.until(queued)


async def restarted(services, queued):
    await services.restart("executor")
    return await services.until(queued)


@pytest.mark.parametrize(
    ("end", "limits", "status"),
    [(aborted, {}, 499), (out_of_time, {"wall_max": timedelta(seconds=3)}, 499), (restarted, {}, 200)],
    ids=["abort", "budget", "shutdown"],
)
async def test_a_command_that_its_owner_stops_is_told_as_stopped_with_its_output(tmp_path, end, limits, status):
    # Whoever reads that it was cancelled would do it again.
    async with running(tmp_path, lease_s=600, drain_s=0.1) as services:
        script = "echo begun; echo happened > happened.txt; echo $$ > pid; sleep 600"
        queued, _ = await act_slowly(services, script, budget=budget_pb2.Budget(**limits))
        loop = await end(services, queued)
        assert loop.status == status
        record = await services.entry("log://turn_1/sh/sh_slow.sh")
        assert (record.state, record.outcome) == (State.FAILED, "stopped:499")
        assert "it may have had effects" in record.body
        out = await services.entry("sh://turn_1/sh_slow.sh_1")
        assert (out.state, out.outcome, out.body) == (State.FAILED, "stopped:499", "begun\n")
        assert (services.files / "happened.txt").exists()


# ---- A budget is spent: what was recorded is carried out, and no more is asked for

CALL_TOKENS = 2_000_000
SPENDS = """<sh>echo happened >> happened.txt</sh>
<set path="set.txt">happened</set>
<sh>exit 3</sh>
<sh>echo happened >> never.txt</sh>
<set path="never.txt">happened</set>
<update status="102">Going on.</update>"""


@pytest.mark.parametrize(
    ("kind", "limits"),
    [
        ("turns", {"turns_max": 1}),
        ("tokens", {"tokens_max": CALL_TOKENS}),
        ("tokens", {"tokens_max": CALL_TOKENS + 1000}),
        ("cost", {"cost_usd_max": 2}),
        ("cost", {"cost_usd_max": 2.001}),
    ],
    ids=["turns", "tokens", "tokens of the next call", "cost", "cost of the next call"],
)
async def test_a_spent_budget_leaves_no_command_untold(tmp_path, monkeypatch, kind, limits):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
    monkeypatch.setenv("TURNWRIGHT_PRICE_m", "1/1/1")
    async with SseServer([chat(SPENDS, prompt_tokens=CALL_TOKENS)]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            loop = await services.until(await services.act(budget=budget_pb2.Budget(**limits)))
            entries = [one async for one in services.client.list_entries(services.project, "r", "log://turn_1/s*/*")]
    assert (loop.status, loop.reason.split(": ")[0], len(server.requests)) == (499, f"budget_exhausted:{kind}", 1)
    told = {entry.path.removeprefix("log://turn_1/"): State(entry.state) for entry in entries}
    assert told == {
        "sh/echo_happened_%3E%3E_happened.txt": State.RESOLVED,
        "set/set.txt": State.RESOLVED,
        "sh/exit_3": State.FAILED,
        "sh/echo_happened_%3E%3E_never.txt": State.CANCELLED,
        "set/never.txt": State.CANCELLED,
    }
    files = {file.name: file.read_text().strip() for file in services.files.glob("*.txt")}
    assert files == {"happened.txt": "happened", "set.txt": "happened"}
