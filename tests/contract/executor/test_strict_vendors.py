"""Long runs as conversations with vendors that refuse what the real ones refuse: no request of them is refused.

Each run has 60 turns and more: broken and failing calls, rejections, changed proposals, aborts, replies that break off,
executors that are restarted, another model of another vendor in between, and packets. Issue 15; rows RL02, RL06, RD08.
"""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from turnwright.types.v1 import plan_pb2, settings_pb2
from turnwright.types.v1.session_command_pb2 import (
    Regenerate,
    RemoveMessage,
    RewindToTurn,
    TruncateMessages,
    UpdateMessage,
)

from services import Services, running
from sse_server import Answer, SseServer, error, never
from strict_vendors import STRICT, RefusedError, Reply, StrictVendor, serving

pytestmark = pytest.mark.asyncio

TRANSCRIPT, PACKET = settings_pb2.ASSEMBLY_TRANSCRIPT, settings_pb2.ASSEMBLY_PACKET
OTHER = {"chat": "anthropic", "openrouter": "responses", "responses": "gemini", "anthropic": "chat", "gemini": "ollama",
         "ollama": "anthropic"}  # fmt: skip
"""The vendor that a run goes to in between."""

LENIENT = ("chat", "openrouter", "responses", "anthropic")
"""Those whose models can write arguments that are no JSON."""

TURNS = 40

COUNTS = {
    path: error(404, "Not Found")
    for path in ("/v1/messages/count_tokens", "/v1/responses/input_tokens", "/v1beta/models/gemini-3-x:countTokens")
}
"""The endpoints that count tokens, which these vendors do not have."""


class LongRun:
    """A run of a model, with what its vendors are to reply."""

    def __init__(self, services: Services, replies: deque[Reply | Answer], vendors: dict[str, StrictVendor]) -> None:
        self.services = services
        self.replies = replies
        self.vendors = vendors
        self.turns = 0

    async def act(self, prompt: str, *replies: Reply | Answer, **settings) -> int:
        """The status of a loop with these replies, and one of text behind them."""
        queued = await self.begin(prompt, *replies, **settings)
        return await self.ended(queued)

    async def begin(self, prompt: str, *replies: Reply | Answer, model: str = "m", **settings):
        self.replies.extend([*replies, Reply(f"That is done: {prompt}")])
        wanted = settings_pb2.LoopSettings(model=model, **{"yolo": True, "assembly": TRANSCRIPT, **settings})
        return await self.services.client.act(self.services.project, prompt, run="r", settings=wanted)

    async def ended(self, queued) -> int:
        loop = await self.services.until(queued)
        self.turns += loop.turns
        self.replies.clear()
        assert self.refusals() == [], f"{loop.prompt}: {loop.status} {loop.reason}"
        return loop.status

    def refusals(self) -> list[str]:
        return [f"{name}: {words}" for name, vendor in self.vendors.items() for words in vendor.refusals]


def work(count: int, *, begin: int = 0) -> list[Reply]:
    """Turns with calls of several kinds."""
    kinds = [
        lambda number: Reply("Looking.", [("get", {"path": "a.txt"}), ("think", {"body": f"Hm {number}."})]),
        lambda number: Reply("", [("set", {"path": f"known://n{number}", "body": f"{number}"})]),
        lambda number: Reply("", [("sh", {"command": f"echo {number}"}), ("get", {"path": "known://*"})]),
        lambda number: Reply("Text beside.", [("think", {"body": "x" * 3000})], thinks=False),
        lambda number: Reply("", [("get", {"path": f"b{number}.txt"})]),
    ]
    return [kinds[number % len(kinds)](number) for number in range(begin, begin + count)]


def odd(name: str) -> list[Reply]:
    """Replies that are hard to send back."""
    broken = [Reply("", [("get", '{"path": "a'), ("get", "nonsense")])] if name in LENIENT else []
    return [
        *broken,
        Reply("", [("unheard_of", {"x": 1}), ("get", {"path": "a.txt"})]),
        Reply("", [("get", {})]),
        Reply("  \n", [("think", {"body": ""})]),
        Reply("", [("set", {"path": "a.txt", "body": "<<SEARCH\nnone of it\nSEARCH\n<<REPLACE\nx\nREPLACE"})]),
        Reply("", [("think", {"body": "one"})] * 12),
    ]


async def live_through(run: LongRun, name: str) -> None:
    services, project = run.services, run.services.project
    client = services.client
    assert await run.act("Work.", *work(8)) == 200
    await run.act("Be odd.", *odd(name))
    # What people say and set in between.
    await client.inject_message(project, "r", "Mind the gap.")
    plan = plan_pb2.Plan(kind=plan_pb2.PLAN_KIND_MARKDOWN, body="# One")
    await client.set_plan(project, "r", plan)
    assert await run.act("Go on.", *work(8, begin=8)) == 200
    # A rejection beside another call, and a proposal that is changed.
    for resolution in ("reject", "accept"):
        asked = [("set", {"path": f"{resolution}.txt", "body": "old"}), ("get", {"path": "a.txt"})]
        queued = await run.begin("Propose.", Reply("", asked), *work(2), yolo=False)
        await services.until(queued, 202)
        [waiting] = [one async for one in client.list_proposals(project, "r")]
        path = waiting.proposal.path
        if resolution == "reject":
            await client.resolve(project, "r", path, accept=False, comment="Not like that.")
        else:
            await client.resolve(project, "r", path, accept=True, contents={"accept.txt": "new"})
        await run.ended(queued)
    # Aborts: before a word, and in the middle of a command.
    for stopped in (never(), Reply("", [("sh", {"command": "sleep 60"}), ("get", {"path": "a.txt"})])):
        queued = await run.begin("Wait.", stopped)
        await begun(run, queued, is_command=isinstance(stopped, Reply))
        await client.abort(project, "r")
        await run.ended(queued)
        assert await run.act("Go on after that.", *work(2)) == 200
    # Half a reply, and no reply at all.
    half = run.vendors[name].answer(Reply("This is cut in the mid"), 1000, 10, 0)
    cut = Answer(headers=half.headers, chunks=half.chunks[:-1], end="cut")
    await run.act("Break off.", cut, *work(2))
    await run.act("Say nothing.", Reply("", thinks=False), *work(2))
    # Other owners of the run, in the middle of a command and between commands.
    queued = await run.begin("Be restarted.", Reply("", [("sh", {"command": "sleep 2; echo 1"})]), *work(4))
    await begun(run, queued, is_command=True)
    await services.restart("executor")
    await run.ended(queued)
    await edit(run)
    # Another model of another vendor, packets, and back.
    assert await run.act("Work elsewhere.", *work(5), model="other") == 200
    assert await run.act("Back.", *work(5)) == 200
    await run.act(
        "Packets.", Reply('<get path="a.txt"/>'), Reply('<update status="200">Done.</update>'), assembly=PACKET
    )
    await client.submit(project, "r", rewind_to_turn=RewindToTurn(turn=5))
    number = 100
    while run.turns < TURNS:
        assert await run.act("More.", *work(5, begin=number)) == 200
        number += 5


async def edit(run: LongRun) -> None:
    """Rewrite, remove and rewind messages of each kind, each time with a loop that sends what is left."""
    client, project = run.services.client, run.services.project

    async def submit(**kind) -> None:
        await client.submit(project, "r", **kind)
        assert await run.act("Go on after the edit.", *work(1)) == 200

    async def messages() -> list:
        return [message async for message in client.list_messages(project, "r")]

    await run.act("Be edited.", *work(4))
    listed = await messages()
    replies = [message.path for message in listed if message.path.startswith("assistant://")]
    results = [message.path for message in listed if message.path.startswith("log://")]
    for path in (replies[-4], results[-4], "prompt://1"):
        await submit(update_message=UpdateMessage(message_id=path, content="Changed."))
    for path in (replies[-3], results[-1], replies[0]):
        await submit(remove_message=RemoveMessage(message_id=path))
    # In the middle of a turn: a reply stands without its results.
    listed = await messages()
    place = next(at for at in reversed(range(len(listed))) if listed[at].path.startswith("log://"))
    revision = (await client.get_run(project, "r")).run.revision
    await submit(truncate_messages=TruncateMessages(from_index=place, expected_revision=revision))
    run.replies.extend(work(1))
    await client.submit(project, "r", regenerate=Regenerate())
    await client.wait_loop(project, "r", (await client.get_run(project, "r")).run.loop.sequence)
    run.replies.clear()


async def begun(run: LongRun, queued, *, is_command: bool) -> None:
    """Until the model was asked, or until a command of the system runs."""
    client = run.services.client
    async for event in client.watch(run.services.project, "r", queued.cursor):
        if not is_command and event.WhichOneof("event") == "stream_started":
            return
        if event.WhichOneof("event") == "message_added" and "/sh/" in event.message_added.entry.path:
            await asyncio.sleep(0.1)
            return


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if name == "openrouter" else name for name in STRICT]
)
async def test_no_request_of_a_long_run_is_refused(tmp_path, monkeypatch, name):
    replies: deque[Reply | Answer] = deque()

    def script(_: int) -> Reply | Answer:
        return replies.popleft() if replies else Reply("There is nothing to do.")

    vendors = {one: STRICT[one](script) for one in (name, OTHER[name])}
    first, second = vendors.values()
    async with SseServer([first] * 500, pages=COUNTS) as one, SseServer([second] * 500, pages=COUNTS) as two:
        serving(monkeypatch, tmp_path, name, one.url)
        serving(monkeypatch, tmp_path, OTHER[name], two.url, alias="other")
        async with running(tmp_path, strikes_max=100) as services:
            (services.files / "a.txt").write_text("one\ntwo\n" * 50)
            run = LongRun(services, replies, vendors)
            await live_through(run, name)
    assert run.refusals() == []
    assert run.turns >= TURNS
    assert len(second.bodies) >= 5


U, A = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}
CALLS = [{"id": "c", "type": "function", "function": {"name": "get", "arguments": "{}"}}]
CALLED, RESULT = {"role": "assistant", "content": None, "tool_calls": CALLS}, {
    "role": "tool", "content": "x", "tool_call_id": "c"
}  # fmt: skip
MARK = {"cache_control": {"type": "ephemeral"}}
TEXT = {"type": "text", "text": "x"}
USE, ANSWER = {"type": "tool_use", "id": "t", "name": "get", "input": {}}, {"type": "tool_result", "tool_use_id": "t"}
THOUGHT = {"type": "thinking", "thinking": "x", "signature": "s"}
FC = {"functionCall": {"id": "g", "name": "get", "args": {}}, "thoughtSignature": "skip_thought_signature_validator"}
FR = {"functionResponse": {"id": "g", "name": "get", "response": {}}}


def turns(*blocks: list[dict], first: str = "user") -> dict:
    roles = ["user", "assistant"] if first == "user" else ["assistant", "user"]
    return {"messages": [{"role": roles[place % 2], "content": content} for place, content in enumerate(blocks)]}


def contents(*parts: list[dict]) -> dict:
    return {"contents": [{"role": ("user", "model")[place % 2], "parts": each} for place, each in enumerate(parts)]}


REFUSED = {
    "chat": [
        ({"messages": [U, RESULT]}, "must answer"),
        ({"messages": [U, CALLED, U]}, "no tool message answers"),
        ({"messages": [U, CALLED, RESULT, RESULT]}, "must answer"),
        ({"messages": [U, U]}, "alternate"),
        ({"messages": [U, {"role": "assistant", "content": ""}, U]}, "empty"),
        ({"messages": [U, A]}, "last role"),
        ({"messages": [U, {**CALLED, "tool_calls": CALLS * 129}]}, "array too long"),
        ({"messages": [U, {**A, "reasoning_details": [{"signature": "s", "text": "t"}]}, U]}, "signature"),
    ],
    "openrouter": [({"messages": [{**U, "content": [{**TEXT, **MARK}] * 5}]}, "maximum of 4")],
    "responses": [
        ({"input": [U, {"type": "function_call_output", "call_id": "c", "output": ""}]}, "No tool call found"),
        ({"input": [U, {"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}"}]}, "No tool output"),
        ({"input": [{"role": "user", "content": ""}]}, "empty"),
        ({"input": [U, {"type": "reasoning", "id": "r", "encrypted_content": "e"}]}, "signature"),
    ],
    "anthropic": [
        (turns([TEXT], [USE], [TEXT]), "tool_result"),
        (turns([ANSWER]), "tool_result"),
        (turns([TEXT], [USE], [TEXT, ANSWER]), "must come first"),
        (turns([{"type": "text", "text": " "}]), "non-whitespace"),
        (turns([{**TEXT, **MARK}] * 5), "maximum of 4"),
        (turns([TEXT], [THOUGHT, USE], [ANSWER]), "signature"),
        (turns([TEXT], [TEXT, THOUGHT], [TEXT]), "must stand before"),
        ({**turns([TEXT], [USE], [ANSWER]), "thinking": {"type": "enabled"}}, "Expected `thinking`"),
        (turns([TEXT], [USE, USE], [ANSWER, ANSWER]), "unique"),
        (turns([TEXT], first="assistant"), "first message"),
        (turns([TEXT], [TEXT]), "must end with a user"),
    ],
    "gemini": [
        (contents([{"text": "x"}], [FC], [{"text": "x"}]), "number of function response"),
        (contents([FR]), "number of function response"),
        (contents([{"text": ""}]), "empty"),
        (contents([{"text": "x"}], [{"functionCall": FC["functionCall"]}], [FR]), "missing a thought_signature"),
        (contents([{"text": "x"}], [{**FC, "thoughtSignature": "other"}], [FR]), "signature"),
    ],
    "ollama": [
        ({"messages": [U, {**RESULT, "tool_name": "get"}]}, "answers no call"),
        ({"messages": [U, {"role": "assistant", "content": ""}, U]}, "empty"),
        ({"messages": [U, {**A, "thinking": "changed"}, U]}, "signature"),
    ],
}


@pytest.mark.parametrize(
    ("name", "body", "words"), [(name, *case) for name, cases in REFUSED.items() for case in cases]
)
async def test_these_vendors_refuse_what_the_real_ones_refuse(name, body, words):
    vendor = STRICT[name](lambda _: Reply("x"))
    with pytest.raises(RefusedError, match=words):
        vendor.check(body)
