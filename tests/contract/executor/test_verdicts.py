"""Verdicts over turns of a running executor. Rows RU005, RU136, RU151, RU153, RU156, RU281, RU293, RU298, RU299."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from services import Services, running
from sse_server import SseServer, chat
from turnwright_core.limits import ATTRIBUTES_BYTES_MAX, LOOP_SUMMARY_BYTES_MAX

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
GET = '<get path="a.txt"/>'


def errors(services: Services) -> dict[str, tuple[int, str]]:
    """The error entries of the run, as its watcher knows them: status and outcome by path."""
    entries = services.view().entries
    return {path: (entry.status, entry.outcome) for path, entry in entries.items() if "/error/" in path}


async def strikes(services: Services) -> list[int]:
    turns = (await services.client.get_run(services.project, "r", turns_max=10)).turns
    return [turn.result.strikes for turn in sorted(turns, key=lambda turn: turn.number)]


async def test_a_loop_goes_on_until_a_terminal_update(services) -> None:
    # RU005
    services.script(GET, f"{GET}{GO_ON}", DONE, "never asked")
    loop = await services.until(await services.act())
    assert (loop.status, loop.reason, loop.turns) == (200, "update", 3)


async def test_a_loop_has_so_many_turns_and_no_more(tmp_path, monkeypatch) -> None:
    # RU281, RU298
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, loop_turns_max=2) as services:
        services.script(GO_ON, f"<think>On.</think>{GO_ON}", GO_ON, DONE)
        first = await services.until(await services.act())
        second = await services.until(await services.act("Go on."))
    assert (first.status, first.reason, first.turns) == (499, "loop_turns", 2)
    # The limit is of the loop: the run goes on with the next one.
    assert second.turns > 0


async def test_commands_beyond_the_limit_are_dropped_with_one_error_that_is_a_strike(tmp_path, monkeypatch) -> None:
    # RU153, RU293, RU299
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, turn_commands_max=2) as services:
        (services.files / "a.txt").write_text("x")
        services.script(f"{GET}{GO_ON}{GET}{GET}", DONE)
        loop = await services.until(await services.act())
        assert errors(services) == {"log://turn_1/error/too_many_commands_1": (400, "unreadable:400")}
        assert "2" in (await services.entry("log://turn_1/error/too_many_commands_1")).body
        assert (loop.turns, await strikes(services)) == (2, [1, 0])


@pytest.mark.parametrize(
    ("replies", "ignored", "turns"),
    [
        ((f"{GET}{DONE}{GET}{GET}", DONE), [2, 2], 2),
        ((f"{GET}{DONE}{GET}", f"{GET}{DONE}{GET}"), [1, 2], 2),
        ((f"{GET}{GO_ON}{DONE}", DONE), [1, 1], 2),
        ((f"```xml\nSo:\n{GET}\n```\n{GET}{DONE}{GET}", DONE), [2, 2], 2),
        ((f"{GET}{DONE}",), [0], 1),
    ],
)
async def test_commands_beyond_the_limit_count_like_ignored_ones_when_a_loop_ends(
    tmp_path, monkeypatch, replies, ignored, turns
) -> None:
    # C67: told once, which takes one more turn
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, turn_commands_max=2) as services:
        (services.files / "a.txt").write_text("x")
        services.script(*replies)
        loop = await services.until(await services.act())
        told = (await services.client.get_run(services.project, "r", turns_max=9)).turns
        assert [turn.result.tally.ignored_commands for turn in sorted(told, key=lambda one: one.number)] == ignored
        assert (loop.status, loop.turns) == (200, turns)


async def test_native_calls_beyond_the_limit_are_dropped_with_one_error(tmp_path, monkeypatch) -> None:
    # RU284, RU293: no call is dropped in silence, in whichever way it came
    call = {"type": "function", "function": {"name": "get", "arguments": '{"path": "a.txt"}'}}
    calls = [{**call, "index": index, "id": f"c{index}"} for index in range(3)]
    async with SseServer([chat(GET * 3, tool_calls=calls, finish="tool_calls"), chat(DONE)]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path, turn_commands_max=2) as services:
            (services.files / "a.txt").write_text("x")
            loop = await services.until(await services.act())
            assert errors(services) == {"log://turn_1/error/too_many_commands_1": (400, "unreadable:400")}
            said = (await services.entry("log://turn_1/error/too_many_commands_1")).body
            assert (loop.turns, await strikes(services)) == (2, [1, 0])
            told = (await services.client.get_run(services.project, "r", turns_max=9)).turns
            assert {turn.result.tally.ignored_commands for turn in told} == {4}
    assert said == "Only the first 2 commands were taken; 4 were dropped."


@pytest.mark.parametrize(
    ("name", "arguments", "path", "outcome"),
    [
        ("set", {"path": "long.txt", "body": "x" * ATTRIBUTES_BYTES_MAX}, "set/long.txt", "too_large:413"),
        ("n" * ATTRIBUTES_BYTES_MAX, {"path": "a.txt"}, f"{'n' * 80}/a.txt", "not_found:404"),
    ],
    ids=["arguments", "name"],
)
async def test_a_native_call_longer_than_an_entry_keeps_ends_no_loop(
    tmp_path, monkeypatch, name, arguments, path, outcome
) -> None:
    # RU276: where the record cannot hold it, the reply keeps the beginning of it
    text = json.dumps(arguments)
    call = {"index": 0, "id": "c0", "type": "function", "function": {"name": name, "arguments": text}}
    async with SseServer([chat("", tool_calls=[call], finish="tool_calls"), chat(DONE)]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            loop = await services.until(await services.act())
            record = await services.entry(f"log://turn_1/{path}")
            [kept] = json.loads((await services.entry("assistant://1")).attributes_json)["calls"]
    assert (loop.status, loop.turns, record.outcome) == (422, 2, outcome)
    assert kept["path"] == record.path
    # C41: arguments stand in the record, unless it cannot hold them.
    is_cut = outcome == "too_large:413"
    assert ("arguments" in kept, kept.get("chars", len(text))) == (is_cut, len(text))
    assert text.startswith(kept.get("arguments", ""))


@pytest.mark.parametrize("finish", ["length", "content_filter", "MAX_TOKENS", "SAFETY", "model_length", "refusal"])
async def test_a_command_that_the_vendor_cut_off_is_not_carried_out(tmp_path, monkeypatch, finish) -> None:
    cut = chat('<set path="a.txt">half of', finish=finish)
    async with SseServer([cut, chat(DONE)]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            (services.files / "a.txt").write_text("old")
            await services.until(await services.act())
            assert (await services.entry("log://turn_1/error/cut_reply_1")).outcome == "cut:400"
            assert (services.files / "a.txt").read_text() == "old"


async def test_an_answer_longer_than_a_summary_ends_the_loop_all_the_same(tmp_path, monkeypatch) -> None:
    # C3: the text is the summary, as much of it as a loop keeps
    text = "\N{EURO SIGN}" * (LOOP_SUMMARY_BYTES_MAX // 3 + 100)
    async with SseServer([chat(text, chunk_chars=50_000)]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            loop = await services.until(await services.act())
            kept = await services.entry("assistant://1")
    assert (loop.status, loop.reason) == (200, "text")
    assert loop.summary == text[: LOOP_SUMMARY_BYTES_MAX // 3]
    assert kept.body == text


async def test_a_vendor_that_counts_too_little_does_not_make_a_packet_fit(tmp_path, monkeypatch) -> None:
    # C16, RU142: some leave out what they have in their cache
    long = f'<set path="unknown://long">{"word " * 30_000}</set>'
    async with SseServer([chat(long + GO_ON, chunk_chars=50_000, prompt_tokens=10), chat(DONE)]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            loop = await services.until(await services.act())
            assert errors(services) == {"log://turn_1/error/budget_turn": (413, "budget:413")}
            assert (loop.status, len((await services.entry("user://2")).body) < 30_000) == (200, True)


async def test_a_vendor_that_counts_beyond_measure_does_not_end_the_loop(tmp_path, monkeypatch) -> None:
    # C16: such a figure says nothing of the packet
    async with SseServer([chat(f"{GET}{GO_ON}", prompt_tokens=10**9), chat(DONE)]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            (services.files / "a.txt").write_text("x")
            loop = await services.until(await services.act())
    assert (loop.status, loop.turns) == (200, 2)


async def test_a_failed_command_is_a_strike_without_an_error_entry(services) -> None:
    # RU151, RU152
    services.script(f'<get path="gone.txt"/>{GO_ON}', DONE)
    await services.until(await services.act())
    assert await services.status("log://turn_1/get/gone.txt") == 404
    assert (errors(services), await strikes(services)) == ({}, [1, 0])


async def test_text_beside_a_command_is_no_error_and_no_strike(services) -> None:
    # RU136
    services.script(f"Let me check:\n{GET}\nOK.", DONE)
    loop = await services.until(await services.act())
    assert (loop.turns, errors(services), await strikes(services)) == (2, {}, [0, 0])


async def test_an_empty_reply_is_a_strike_and_three_of_them_end_the_loop(services) -> None:
    # RU280, RU281; C3
    services.script("", " ", "\n")
    loop = await services.until(await services.act())
    assert (loop.status, loop.turns, await strikes(services)) == (499, 3, [1, 2, 3])


async def test_a_cycle_ends_the_loop_and_no_entry_speaks_of_it(services) -> None:
    # RU156
    services.script(*[GET] * 6)
    loop = await services.until(await services.act())
    assert (loop.status, loop.reason, loop.turns) == (499, "cycles", 5)
    assert await strikes(services) == [0, 0, 1, 2, 3]
    assert errors(services) == {}
    assert not any("cycle" in entry.body.lower() for entry in services.view().entries.values())


async def test_the_last_of_two_updates_counts_and_a_false_claim_is_reported(services) -> None:
    # RU140, RU141
    services.script(f'<get path="gone.txt"/>{GO_ON}{DONE}', f"{DONE}{GO_ON}", DONE)
    loop = await services.until(await services.act())
    assert loop.turns == 3
    assert (await services.entry("log://turn_1/update/3")).outcome == "conflict:409"
    assert (await services.entry("log://turn_1/update/2")).status == 200


@pytest.mark.parametrize(
    ("error", "path", "status", "loop_status"),
    [
        ("class=context_exceeded", "log://turn_2/error/context_exceeded", 413, 413),
        ("class=auth", "log://turn_2/error/vendor_auth", 500, 500),
        ("class=invalid", "log://turn_2/error/vendor_rejected", 500, 500),
    ],
    ids=["context", "auth", "invalid"],
)
async def test_what_no_command_can_carry_is_an_error_entry(services, error, path, status, loop_status) -> None:
    # RU153, RU154
    (services.root / "m.txt").write_text(f"=== reply delay_ms=0 ===\n{GO_ON}\n=== error {error} ===\n")
    loop = await services.until(await services.act())
    assert (loop.status, {name: code for name, (code, _) in errors(services).items()}) == (loop_status, {path: status})


async def test_a_reply_that_does_not_end_is_an_error_entry(tmp_path, monkeypatch) -> None:
    # RU154
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, reply_bytes_max=65_536) as services:
        services.script("x" * 70_000)
        loop = await services.until(await services.act())
        assert loop.status == 500
        assert {name: code for name, (code, _) in errors(services).items()} == {
            "log://turn_1/error/vendor_protocol": 500
        }


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('<rm path="src/ma', "cut_call"),
        ("<tool_call>nothing to read</tool_call>", "unreadable_call"),
        ("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE", "conflict_without_path"),
        ("a.txt\n<<<<<<< SEARCH\na\n=======\nb", "conflict_block"),
    ],
)
async def test_what_could_not_be_read_is_an_error_entry_that_the_model_reads(services, text, kind) -> None:
    # RU153, RU154, RU284
    services.script(f"{GET}\n{text}", DONE)
    await services.until(await services.act())
    path = f"log://turn_1/error/{kind}_1"
    assert errors(services) == {path: (400, "unreadable:400")}
    assert f'<error path="{path}"' in (await services.entry("user://2")).body
    assert await strikes(services) == [1, 0]


async def test_a_repair_is_reported_with_the_reply_and_is_no_error(services) -> None:
    # RU197, RU284: the reply is kept as it came
    reply = f'<get path="a.txt>\n{DONE}'
    services.script(reply)
    loop = await services.until(await services.act())
    kept = await services.entry("assistant://1")
    assert (kept.body, loop.status, errors(services)) == (reply, 200, {})
    assert [warning["kind"] for warning in json.loads(kept.attributes_json)["warnings"]][:1] == ["attribute_quotes"]


async def test_a_vendor_that_falls_silent_is_an_error_entry(tmp_path, monkeypatch) -> None:
    # RU154: the watchdog of a stream
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
    monkeypatch.setenv("TURNWRIGHT_VENDOR_SILENCE_S", "0.3")
    begun = chat("never whole")
    async with SseServer([replace(begun, chunks=begun.chunks[:2], end="hang")] * 3) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            loop = await services.until(await services.act())
            assert (loop.status, len(errors(services))) == (500, 1)
            [(path, (status, _))] = errors(services).items()
    assert path.startswith("log://turn_1/error/")
    assert status == 500


HOSTILE = (
    '<get path="/(/"/>',
    '<rm path="/[/"/>',
    '<get path="//a["/>',
    '<get path="$..["/>',
    '<get path="{a,{b"/>',
    '<get path="known://*">/(?P<x/</get>',
    '<set path="/(/" visibility="archived"/>',
    '<set path="a.txt">s/(/x/</set>',
    '<set path="">x</set>',
    '<mv path="a.txt" to=""/>',
    '<cp path="**" to="**"/>',
    '<get path="a.txt" line="x" limit="-99999999999999999999"/>',
    "<sh></sh>",
    '<update status="9999999999999">x</update>',
    '<get path="a\ud800b"/>',
)


@pytest.mark.parametrize("reply", HOSTILE)
async def test_whatever_a_model_writes_the_loop_goes_on(services, reply) -> None:
    # RU276: a command that makes no sense is refused or fails; the run does not
    (services.root / "m.txt").write_text(
        f"=== reply ===\n{reply.encode('utf-8', 'replace').decode()}{GO_ON}\n=== reply ===\n{DONE}\n"
    )
    loop = await services.until(await services.act())
    is_change = reply.startswith(("<rm", "<mv", '<set path="a.txt"', '<set path=""'))
    is_nameless = '=""' in reply
    assert (loop.status, loop.turns, loop.reason.partition(":")[0]) == (
        (422, 2, "nothing_run" if is_nameless else "change_failed") if is_change else (200, 2, "update")
    )
    assert 500 not in {status for status, _ in errors(services).values()}
    records = [entry for path, entry in services.view().entries.items() if path.startswith("log://turn_1/")]
    assert not [entry.path for entry in records if entry.outcome.endswith(":500")]
