"""The cases that the store decides, over its rpcs. Exceptions are named with the row or the decision that they break."""

import json

import pytest
from turnwright_values.types import State, Tier, Visibility

from cases import Case, expect, params
from contract.store.harness import (
    FAILED,
    RESOLVED,
    STREAMING,
    SUMMARIZED,
    append,
    new_run,
    remove,
    set_,
)
from contract.store.shared_store import POSTGRESQL_IN_SOAK, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.schemes import scheme_from_pb

pytestmark = POSTGRESQL_IN_SOAK
db, client, project, run = SHARED_FIXTURES

ELSEWHERE = {
    "store-014": "slugs are the grammar's (RU295)",
    "store-016": "slugs are the grammar's (RU295)",
    "store-017": "there is no status to write: it is derived from the state (C10)",
}


# ---- known_store, streaming


@pytest.mark.parametrize("case", params("rummy/known_store.jsonl", "rummy/streaming.jsonl"))
async def test_the_known_store(client, run, case):
    """RU065, RU090-RU095 by the cases; the ones about other parts of the system are named below."""
    if case["id"] in ELSEWHERE:
        assert {op["op"] for op in case["input"]["ops"]} & {"slug_path"} or "status" in case["input"]["ops"][0]
        return
    runs = {"A": run, "B": await new_run(client, run.project, "B"), None: run}
    error, returns = None, []
    for op in case["input"]["ops"]:
        try:
            returns.append(await perform(runs[op.get("run")], op, case))
        except TurnwrightError as raised:
            error = raised
    expected = case["expected"]
    assert bool(expected.get("error")) == (error is not None), error
    if "returns" in expected:
        assert returns == expected["returns"]
    if "absent" in expected:
        assert await run.entry(expected["absent"]) is None
    if "entry" in expected:
        await check_entry(run, expected["entry"])
    if "count" in expected:
        assert (await run.view()).paths.count(expected["entry"]["path"]) == expected["count"]
    for name, body in expected.get("bodies", {}).items():
        assert (await runs[name].entry(case["input"]["ops"][0]["path"])).body == body
    if expected.get("scopes_differ"):
        scopes = {(await runs[name].entry(case["input"]["ops"][0]["path"])).scope for name in "AB"}
        assert len(scopes) == 2


async def perform(run, op, case):
    match op["op"]:
        case "set":
            attributes = json.dumps(op["attributes"]) if "attributes" in op else None
            state = State[op.get("state", "resolved").upper()]
            visibility = Visibility[op.get("visibility", "visible").upper()]
            await run.write(set_(op["path"], op["body"], attributes, state=state, visibility=visibility))
        case "rm":
            await run.write(remove(op["path"]))
        case "append":
            await run.write(append(op["path"], op["body"]))
        case "stream_completed":
            path = case["input"]["ops"][0]["path"]
            await run.write(set_(path, state=RESOLVED if op["exit_code"] == 0 else FAILED))
        case "resolve":
            await run.client.call("ResolveProposal", **run.address, path=op["path"], reject={})
        case "next_turn":
            number = (await run.begin()).next.number
            await run.end(number)
            return number
        case other:
            raise AssertionError(other)
    return None


async def check_entry(run, expected):
    entry = await run.entry(expected["path"])
    words = {"state": State(entry.state).name.lower, "scheme": lambda: entry.scheme or None}
    words["attributes"] = lambda: json.loads(entry.attributes_json)
    for key, value in expected.items():
        assert words.get(key, lambda key=key: getattr(entry, key))() == value, key


# ---- demotion


@pytest.mark.parametrize("case", params("rummy/demotion.jsonl"))
async def test_a_demotion_changes_the_visibility_only(run, case):
    """RU064 by the cases: states, stamps and statuses stay as they are."""
    for row in case["input"]["rows"]:
        state = {200: RESOLVED, 102: STREAMING}[row["status"]]
        visibility = Visibility[row["visibility"].upper()]
        await run.write(set_(row["path"], "x", state=state, visibility=visibility, turn=row["turn"]))
    await run.write(*(set_(row["path"], visibility=SUMMARIZED) for row in case["input"]["rows"]))
    for row in case["input"]["rows"]:
        entry = await run.entry(row["path"])
        assert Visibility(entry.visibility).name.lower() == case["expected"]["visibility"][row["path"]]
        assert entry.status == case["expected"]["status"][row["path"]]
        assert entry.turn == row["turn"]


# ---- permissions


@pytest.mark.parametrize("case", params("rummy/permissions.jsonl"))
async def test_writable_by_is_an_exact_list(run, case):
    """RU033, RU034, RU068-RU079, RU089 and C9."""
    path, writer = case["input"]["path"], Tier[case["input"]["writer"].upper()]
    error = None
    try:
        await run.write(set_(path, "x", writer=writer))
    except TurnwrightError as refusal:
        error = refusal
    told = {key: error.metadata[key] for key in ("path", "writer", "outcome")} if error else None
    forbidden = {"path": path, "writer": case["input"]["writer"], "outcome": case["expected"].get("outcome")}
    expect(case["id"], passed=told == (None if case["expected"]["allowed"] else forbidden), exceptions={})
    assert error is None or error.reason is Reason.WRITER_FORBIDDEN
    assert (await run.entry(path) is None) is bool(error)


# ---- visibility_rules


@pytest.mark.parametrize("case", params("rummy/visibility_rules.jsonl"))
async def test_what_a_packet_is_given(run, case):
    """RU063, RU066, RU086: the store's part is which entries a packet reads, and in which category they are."""
    given = case["input"]
    writer = Tier.SYSTEM if not case["expected"]["in_context"] and "known" not in given["path"] else Tier.PLUGIN
    visibility, state = Visibility[given["visibility"].upper()], State[given["state"].upper()]
    await run.write(set_(given["path"], given["body"], visibility=visibility, state=state, writer=writer))
    shown = {entry.path: entry for entry in (await run.view(filter=2)).entries}
    assert (given["path"] in shown) is case["expected"]["in_context"]
    if "category" in case["expected"]:
        schemes = {scheme.name: scheme for scheme in (await run.client.call("ListSchemes")).schemes}
        assert scheme_from_pb(schemes[shown[given["path"]].scheme]).category == case["expected"]["category"]
    if case["expected"].get("blocks") == ["summary"]:
        assert shown[given["path"]].visibility == SUMMARIZED


# ---- proposals


def is_of_the_store(case: Case) -> bool:
    """The others say which tool calls propose; they are the executor's."""
    return "entries" in case["input"]


@pytest.mark.parametrize("case", [one for one in params("rummy/proposals.jsonl") if is_of_the_store(one.values[0])])
async def test_what_still_waits_for_a_decision(run, case):
    """RU040: what is proposed waits, whatever else is there."""
    await run.begin()
    for entry in case["input"]["entries"]:
        await run.write(set_(entry["path"], "", state=State[entry["state"].upper()]))
    waiting = [entry.path for entry in (await run.view()).entries if entry.state == State.PROPOSED]
    assert waiting == case["expected"]["unresolved"]
    for path in waiting:
        await run.client.call("ResolveProposal", **run.address, path=path, reject={})
    assert State.PROPOSED not in {entry.state for entry in (await run.view()).entries}
