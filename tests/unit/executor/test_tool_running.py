"""sh and env in real processes, think and update. Rows RU009, RU028, RU083, RU163, RU170-RU174, RU176; decision C30."""

import asyncio

import pytest
from msgspec.structs import replace
from turnwright_values.types import CommandEffect, State, Visibility

from turnwright_core.wire.owner_calls import OWNER_CALLS
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.command_record import Done
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.tools.contract import Proposed, result_of
from turnwright_executor.tools.running import Sh
from turnwright_kit.peer import Peer

from .bench import SECRET, TOOLS, Bench, both, run_entries, served_store
from .commands import built, command


async def has_output(bench) -> bool:
    """Whether output of a command that runs gets into the store."""
    for _ in range(6000):
        if any(entry.body for entry in await bench.rows()):
            return True
        await asyncio.sleep(0.01)
    return False


VISIBLE, SUMMARIZED = Visibility.VISIBLE, Visibility.SUMMARIZED


@pytest.mark.parametrize("tool", ["sh", "env"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_command_is_proposed_and_does_not_run(bench, tool):
    proposal = await bench.prepare(f"<{tool}>touch ran</{tool}>")
    assert proposal == Proposed(CommandEffect("touch ran", 300.0), "run 'touch ran'")
    assert not (bench.root / "ran").exists()
    assert await bench.view() == {}


# RU171, RU172
@pytest.mark.parametrize("tool", ["sh", "env"])
@pytest.mark.asyncio(loop_scope="module")
@both
async def test_an_accepted_command_leaves_a_terse_record_and_two_channels(bench, tool):
    done = await bench.run(f"<{tool}>printf 'one\\ntwo'</{tool}>")
    base = f"{tool}://turn_1/printf_'one%5Cntwo'"
    assert done.body == f"ran 'printf 'one\\ntwo'', exit=0, Output: {base}_1 (2 lines), {base}_2 (empty)"
    assert (done.state, done.outcome) == (State.RESOLVED, "")
    first, second = await bench.entry(f"{base}_1"), await bench.entry(f"{base}_2")
    assert (first.body, first.state, first.visibility) == ("one\ntwo", State.RESOLVED, SUMMARIZED)
    assert (second.body, second.state, second.visibility) == ("", State.RESOLVED, SUMMARIZED)
    said = {"command": "printf 'one\\ntwo'", "channel": 1, "summary": "printf 'one\\ntwo'"}
    assert await bench.attributes(f"{base}_1") == said


@pytest.mark.asyncio(loop_scope="module")
async def test_the_record_says_exit_code_duration_and_sizes(bench):
    done = await bench.run("<sh>echo a; echo bb >&2</sh>")
    attributes = dict(done.attributes)
    assert attributes.pop("duration_s") >= 0
    sizes = [{"lines": 1, "bytes": 2}, {"lines": 1, "bytes": 3}]
    paths = list(await bench.view())
    channels = [{"path": path, **size} for path, size in zip(paths, sizes, strict=True)]
    assert attributes == {"exit_code": 0, "channels": channels}


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_command_that_fails_shows_its_output(bench):
    done = await bench.run("<sh>echo before; echo reason >&2; exit 3</sh>")
    assert (done.state, done.outcome, done.attributes["exit_code"]) == (State.FAILED, "exit_3:500", 3)
    assert "exit=3" in done.body
    entries = list(await bench.rows())
    assert [(entry.body, entry.state, entry.status, entry.visibility) for entry in entries] == [
        ("before\n", State.FAILED, 500, VISIBLE),
        ("reason\n", State.FAILED, 500, VISIBLE),
    ]


@pytest.mark.parametrize(("shown_bytes", "visibility"), [(16 * 1024, VISIBLE), (16 * 1024 + 1, SUMMARIZED)])
@pytest.mark.asyncio(loop_scope="module")
async def test_long_output_of_a_command_that_fails_does_not_fill_the_window(bench, shown_bytes, visibility):
    await bench.run(f"<sh>head -c {shown_bytes} /dev/zero | tr '\\000' x; exit 1</sh>")
    first, _ = await bench.rows()
    assert (len(first.body), first.visibility) == (shown_bytes, visibility)


@pytest.mark.asyncio(loop_scope="module")
async def test_an_empty_channel_stays_out_of_sight(bench):
    await bench.run("<sh>false</sh>")
    assert set((await bench.view()).values()) == {SUMMARIZED}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_command_that_takes_too_long_is_stopped(bench):
    tool = Sh(ExecutorSettings(sh_timeout_s=3.0))
    sent = command("<sh>echo started; sleep 60</sh>")
    proposal = await tool.prepare(sent, bench.context(sent))
    assert proposal.effect == CommandEffect("echo started; sleep 60", 3.0)
    done = await tool.perform(proposal.effect, sent, bench.context(sent))
    await bench.entries.write(done.writes)
    assert (done.state, done.outcome) == (State.FAILED, "timeout:504")
    assert "stopped after 3 s" in done.body
    assert [entry.body for entry in (await bench.rows())] == ["started\n", ""]


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_command_that_a_signal_ended_says_which(bench):
    assert (await bench.run("<sh>kill -9 $$</sh>")).outcome == "signal_9:500"


# RU174
@pytest.mark.asyncio(loop_scope="module")
@both
async def test_output_is_in_the_store_while_the_command_runs(bench):
    text = "<sh>echo early; until [ -e go ]; do sleep 0.02; done; echo late</sh>"
    proposal = await bench.prepare(text)
    running = asyncio.create_task(bench.perform(text, proposal))
    assert await has_output(bench)
    partial = next(iter(await bench.rows()))
    assert (partial.body, partial.state, partial.status) == ("early\n", State.STREAMING, 102)
    (bench.root / "go").touch()
    await running
    assert next(iter(await bench.rows())).body == "early\nlate\n"


@pytest.mark.asyncio(loop_scope="module")
@both
async def test_a_command_that_its_owner_stops_says_what_it_did_until_then(bench):
    text = "<sh>echo early; sleep 60</sh>"
    effect = (await bench.prepare(text)).effect
    sent, told = command(text), []
    running = asyncio.create_task(
        Sh(ExecutorSettings()).perform(effect, sent, replace(bench.context(sent), stopped=told.append))
    )
    assert await has_output(bench)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    [done] = told
    assert (done.state, done.outcome) == (State.FAILED, "stopped:499")
    assert "it may have had effects, Output: sh://turn_1/" in done.body
    await bench.entries.write(done.writes)
    assert [(entry.state, entry.outcome, entry.body) for entry in (await bench.rows())] == [
        (State.FAILED, "stopped:499", "early\n"),
        (State.FAILED, "stopped:499", ""),
    ]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_command_that_cannot_start_fails(bench):
    text = "<sh>true</sh>"
    proposal = await bench.prepare(text)
    bench.root.rmdir()
    done = await bench.perform(text, proposal)
    assert (done.state, done.outcome) == (State.FAILED, "unstartable:500")
    assert {entry.state for entry in (await bench.rows())} == {State.FAILED}


@pytest.mark.asyncio(loop_scope="module")
async def test_an_empty_command_is_refused(bench):
    for tool in ("sh", "env"):
        done = await TOOLS[tool].prepare(built(tool, {"command": " "}), bench.context(built(tool, {})))
        assert (done.state, done.outcome) == (State.FAILED, "invalid:400")


# C30
@pytest.mark.asyncio(loop_scope="module")
async def test_env_is_refused_where_nobody_looks(bench):
    bench.yolo = True
    done = await bench.prepare("<env>ls</env>")
    assert (done.state, done.outcome) == (State.FAILED, "permission:403")
    assert "<sh>" in done.body
    assert isinstance(await bench.prepare("<sh>ls</sh>"), Proposed)


def test_only_commands_have_effects_that_cannot_be_told_afterwards():
    outside = {name for name, tool in TOOLS.items() if tool.effect_class is EffectClass.OUTSIDE}
    assert outside == {"sh", "env"}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_thought_has_no_effect_and_says_nothing_twice(bench):
    assert await bench.prepare("<think>hm</think>") == Done("")


@pytest.mark.parametrize("status", [102, 200, 204, 422])
@pytest.mark.asyncio(loop_scope="module")
async def test_an_update_keeps_its_text_and_status(bench, status):
    done = await bench.prepare(f'<update status="{status}">All is well.</update>')
    assert done == Done("All is well.", attributes={"status": status})


@pytest.mark.asyncio(loop_scope="module")
async def test_an_update_without_a_status_goes_on(bench):
    assert (await bench.prepare("<update>Reading on.</update>")).attributes == {"status": 102}


@pytest.mark.parametrize("status", ["500", "abc", "0200", "²00", "-200"])
@pytest.mark.asyncio(loop_scope="module")
async def test_another_status_fails_and_counts_as_102(bench, status):
    done = await bench.prepare(f'<update status="{status}">done</update>')
    assert (done.state, done.outcome, done.attributes) == (State.FAILED, "invalid:400", {"status": 102})


@pytest.mark.asyncio(loop_scope="module")
async def test_an_effect_of_another_kind_is_not_carried_out(bench):
    effect = CommandEffect("true", 1.0)
    for text in ('<get path="a"/>', '<set path="a">x</set>', '<mv path="a" to="b"/>'):
        sent = command(text)
        done = await result_of(TOOLS[sent.name].perform(effect, sent, bench.context(sent)))
        assert done.state is State.FAILED


@pytest.mark.parametrize("byte", [0, 255])
@pytest.mark.asyncio(loop_scope="module")
async def test_much_output_that_is_no_text_is_kept_although_it_is_three_times_as_long_as_text(bench, byte):
    text = f"<sh>head -c 1500000 /dev/zero | tr '\\000' '\\{byte:o}'</sh>"
    done = await bench.perform(text, await bench.prepare(text))
    first, second = await bench.rows()
    assert (done.state, done.attributes["output_cut"]) == (State.RESOLVED, True)
    assert done.attributes["channels"][0]["bytes"] == len(first.body.encode()) > 3 * 2**20
    assert first.body.count("\ufffd") == 2**20
    assert (first.state, second.state) == (State.RESOLVED, State.RESOLVED)


@pytest.mark.asyncio
async def test_output_waits_for_a_store_that_is_away_and_is_neither_lost_nor_doubled(tmp_path):
    home, root = tmp_path / "home", tmp_path / "project"
    for folder in (home, root):
        folder.mkdir()
    peer = Peer("store", f"unix:{home}/store.sock", SECRET, 10.0, codecs=OWNER_CALLS)
    async with served_store(home):
        bench = Bench(root, await run_entries(peer, root))
        bench.there = frozenset(entry.path for entry in await bench.entries.find(""))
        text = "<sh>for n in $(seq 40); do echo line $n; sleep 0.05; done</sh>"
        running = asyncio.create_task(bench.perform(text, await bench.prepare(text)))
        assert await has_output(bench)
        # The same folder: the store comes back with all that it had.
    await asyncio.sleep(0.6)
    async with served_store(home):
        done = await running
        assert (done.state, done.attributes["exit_code"]) == (State.RESOLVED, 0)
        first, second = await bench.rows()
        assert first.body == "".join(f"line {number}\n" for number in range(1, 41))
        assert (first.state, second.state) == (State.RESOLVED, State.RESOLVED)
    await peer.close()
