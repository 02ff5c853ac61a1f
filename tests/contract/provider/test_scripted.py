"""The scripted vendor over a channel: written replies, by the call's index."""

import pytest
from turnwright.provider.v1.provider_service_pb2 import RetryReason
from turnwright_values.replies import ThinkingBlock, ToolCall

from turnwright_core.chat.reply import PartialReply
from turnwright_core.wire.deltas import delta_from_pb

SCRIPT = """\
=== reply chunk_chars=4 delay_ms=0 ===

First <think>kept</think>.

=== error class=rate_limit status=429 attempts=2 ===
=== error class=gateway detail=bad_gateway ===
=== reply delay_ms=0 ===
Second.
=== error class=context_exceeded ===
=== reply ===
Never reached: its error is not retried.
=== error class=auth status=403 ===
"""


@pytest.fixture
def scripts(tmp_path):
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "demo.txt").write_text(SCRIPT)
    (folder / "wrong.txt").write_text("=== reply speed=3 ===\nx\n")
    (folder / "plain.txt").write_text("Only text.\n")
    (tmp_path / "outside.txt").write_text("not for you")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    return folder


@pytest.mark.asyncio
async def test_the_reply_is_chosen_by_the_index_of_the_call(provider, scripts):
    client = await provider(scripted_dir=scripts)
    first = [await client.generate("scripted/demo", prompt="x" * 9, call_index=0) for _ in range(2)]
    second = await client.generate("scripted/demo", call_index=1)

    # Replayed as it is written: think tags are the reply's own.
    assert [heard.text for heard in first] == ["First <think>kept</think>."] * 2
    assert first[0].parts[0].delta.append_content == "Firs"
    assert (first[0].finish.usage.prompt_tokens, first[0].finish.usage.completion_tokens) == (3, 7)
    assert (first[0].finish.reason, first[0].finish.vendor_model) == ("stop", "demo")
    assert second.text == "Second."
    assert [(r.attempt, RetryReason.Name(r.reason)) for r in second.retries] == [
        (1, "RETRY_REASON_RATE_LIMIT"),
        (2, "RETRY_REASON_RATE_LIMIT"),
        (3, "RETRY_REASON_GATEWAY"),
    ]
    assert second.retries[2].detail == "bad gateway"


CALLS = """\
=== reply chunk_chars=4 delay_ms=0 cached_tokens=5 prompt_tokens=20 cost_usd=0.002 ===
Let us see.
=== reasoning ===
First look.
=== thinking signature=c2lnbmVk+/ id=t1 ===
Where is it?
=== call name=get id=v1 ===
{"path": "a.py"}
=== call name=sh ===
{"command": "ls"}
=== text ===
 Done.
=== reply finish=length delay_ms=0 ===
Cut
"""


@pytest.mark.asyncio
async def test_a_script_writes_calls_thinking_usage_and_finish_reasons(provider, scripts):
    (scripts / "calls.txt").write_text(CALLS)
    client = await provider(scripted_dir=scripts)
    heard = await client.generate("scripted/calls", call_index=0)
    reply = PartialReply()
    for part in heard.parts:
        if part.HasField("delta"):
            reply.add(delta_from_pb(part.delta))

    assert (reply.text, reply.thoughts) == ("Let us see. Done.", "First look.Where is it?")
    assert reply.thinking == [ThinkingBlock("thinking", 2, "t1", "Where is it?", "c2lnbmVk+/")]
    assert reply.calls == (
        ToolCall("get", '{"path": "a.py"}', 0, "v1", block=3),
        ToolCall("sh", '{"command": "ls"}', 1, block=4),
    )
    usage = heard.finish.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.cost_usd, heard.finish.reason) == (
        20,
        5,
        0.002,
        "tool_calls",
    )
    cut = (await client.generate("scripted/calls", call_index=1)).finish
    assert (cut.reason, cut.cut) == ("length", True)


@pytest.mark.asyncio
async def test_a_script_that_has_changed_is_read_again(provider, scripts):
    client = await provider(scripted_dir=scripts)
    before = await client.generate("scripted/plain", call_index=0)
    (scripts / "plain.txt").write_text("Other text.\n")
    after = await client.generate("scripted/plain", call_index=0)

    assert (before.text, after.text) == ("Only text.", "Other text.")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("model", "index", "reason", "words"),
    [
        ("demo", 2, "CONTEXT_EXCEEDED", "demo"),
        ("demo", 3, "VENDOR_AUTH", "403"),
        ("demo", 4, "VENDOR_REJECTED", "the script has only 4 replies"),
        ("plain", 1, "VENDOR_REJECTED", "the script has only 1 reply,"),
        ("absent", 0, "VENDOR_REJECTED", "there are demo, link, plain, wrong"),
        ("wrong", 0, "VENDOR_REJECTED", "line 1: speed is not an option"),
        ("../outside", 0, "VENDOR_REJECTED", "1 to 64 characters"),
        ("demo.txt", 0, "VENDOR_REJECTED", "1 to 64 characters"),
        ("x" * 65, 0, "VENDOR_REJECTED", "1 to 64 characters"),
        ("link", 0, "VENDOR_REJECTED", "outside"),
    ],
)
async def test_what_the_scripts_do_not_hold_is_refused(provider, scripts, model, index, reason, words):
    heard = await (await provider(scripted_dir=scripts)).generate(f"scripted/{model}", call_index=index)

    assert (heard.reason, heard.text) == (reason, "")
    assert words in heard.error.message


@pytest.mark.asyncio
async def test_the_packaged_example_answers_without_any_setting(provider):
    heard = await (await provider()).generate("scripted/hello")

    assert heard.text.startswith("Hello.")
    assert heard.error is None
