"""A prompt that its vendor finds too long is sent again shorter, in a turn of its own. RL08, RU220; issue 15.3."""

from __future__ import annotations

import json

import pytest
from turnwright.types.v1 import settings_pb2

from services import running
from sse_server import Answer, SseServer, error
from strict_vendors import STRICT, Reply, serving

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
PACKET, TRANSCRIPT = settings_pb2.ASSEMBLY_PACKET, settings_pb2.ASSEMBLY_TRANSCRIPT
REAL = 9_700
"""Tokens that the vendor takes, at three bytes of the request each."""

TOLD = 65_536
"""What the runtime believes."""


class ShortWindow:
    """A strict vendor with a window of its own, that says what it refuses in these words."""

    def __init__(self, words: str, real: int = REAL) -> None:
        self.strict = STRICT["anthropic"](lambda number: Reply(DONE, thinks=False))
        self.words, self.real = words, real
        self.sent: list[int] = []

    def __call__(self, request) -> Answer:
        tokens = len(json.dumps(request.json)) // 3
        self.sent.append(tokens)
        if tokens > self.real:
            return error(400, self.words.format(tokens=tokens, real=self.real), "invalid_request_error")
        return self.strict(request)


async def ran(tmp_path, monkeypatch, vendor: ShortWindow, assembly: int, loops: int):
    """The loops and their turns, of a run that is told something long in each loop."""
    async with SseServer([vendor] * 60) as server:
        serving(monkeypatch, tmp_path, "anthropic", server.url)
        async with running(tmp_path) as services:
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=assembly)
            limits = settings_pb2.RunSettings(model="m", context_limit=TOLD)
            ended = []
            for number in range(loops):
                more = {} if number else {"run_settings": limits}
                prompt = f"{number}: " + "alpha beta gamma " * 240
                queued = await services.client.act(services.project, prompt, run="r", settings=settings, **more)
                ended.append(await services.until(queued))
            turns = (await services.client.get_run(services.project, "r", turns_max=200)).turns
            explained = await services.client.explain_packet(services.project, "r")
    return ended, sorted(turns, key=lambda turn: turn.number), explained


@pytest.mark.parametrize(("assembly", "count"), [(PACKET, 4), (TRANSCRIPT, 9)], ids=["packet", "transcript"])
@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: {tokens} tokens > {real} maximum",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ],
    ids=["counted", "uncounted"],
)
async def test_the_prompt_is_sent_shorter_and_the_loop_goes_on(tmp_path, monkeypatch, words, assembly, count):
    vendor = ShortWindow(words)
    loops, turns, explained = await ran(tmp_path, monkeypatch, vendor, assembly, count)

    assert [loop.status for loop in loops] == [200] * count
    refused = [turn for turn in turns if turn.result.error == "context_exceeded:413"]
    assert len(refused) == sum(tokens > REAL for tokens in vendor.sent) > 0
    assert {turn.result.status for turn in refused} == {102}
    assert {turn.result.usage.total_tokens for turn in refused} == {0}
    followers = [next(one for one in turns if one.number == turn.number + 1) for turn in refused]
    assert all(one.request.context_length < TOLD for one in followers)
    if "{real}" in words:
        # Also of later loops.
        assert {turn.request.context_length for turn in turns if turn.number > refused[0].number} == {REAL}
        when = f"when it refused turn {refused[0].number} of r, not"
        assert explained.window_reason.startswith(f"The vendor named a window of {REAL:,} tokens {when} ")
    else:
        assert explained.window_reason == ""
    assert vendor.strict.refusals == []


async def test_a_refusal_is_kept_for_people_and_not_shown_to_the_model(tmp_path, monkeypatch):
    vendor = ShortWindow("prompt is too long: {tokens} tokens > {real} maximum")
    await ran(tmp_path, monkeypatch, vendor, TRANSCRIPT, 9)

    assert "prompt is too long" not in json.dumps(vendor.strict.bodies)


@pytest.mark.parametrize("assembly", [PACKET, TRANSCRIPT])
async def test_a_loop_whose_prompts_are_all_refused_ends_with_the_words_of_its_vendor(tmp_path, monkeypatch, assembly):
    vendor = ShortWindow("prompt is too long: {tokens} tokens > {real} maximum", real=100)
    [loop], turns, _ = await ran(tmp_path, monkeypatch, vendor, assembly, 1)

    assert (loop.status, loop.reason.partition(":")[0]) == (413, "context_exceeded")
    assert "prompt is too long" in loop.reason
    assert len(turns) == len(vendor.sent) == 1
