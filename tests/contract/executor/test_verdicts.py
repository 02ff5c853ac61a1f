"""Verdicts over turns of a running executor. Rows RU005, RU136, RU151, RU153, RU156, RU281, RU293, RU298, RU299."""

from __future__ import annotations

import pytest

from services import Services, running

pytestmark = pytest.mark.asyncio

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
    async with running(tmp_path, max_loop_turns=2) as services:
        services.script(GO_ON, f"<think>On.</think>{GO_ON}", GO_ON, DONE)
        first = await services.until(await services.act())
        second = await services.until(await services.act("Go on."))
    assert (first.status, first.reason, first.turns) == (499, "loop_turns", 2)
    # The limit is of the loop: the run goes on with the next one.
    assert second.turns > 0


async def test_commands_beyond_the_limit_are_dropped_with_one_error_that_is_a_strike(tmp_path, monkeypatch) -> None:
    # RU153, RU293, RU299
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, max_commands=2) as services:
        (services.files / "a.txt").write_text("x")
        services.script(f"{GET}{GO_ON}{GET}{GET}", DONE)
        loop = await services.until(await services.act())
        assert errors(services) == {"log://turn_1/error/too_many_commands_1": (400, "unreadable:400")}
        assert "2" in (await services.entry("log://turn_1/error/too_many_commands_1")).body
        assert (loop.turns, await strikes(services)) == (2, [1, 0])


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


async def test_the_last_of_two_updates_counts_and_a_false_claim_is_told(services) -> None:
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
