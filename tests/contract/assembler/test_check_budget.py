"""What falls of a turn whose results are too much. Rows RU142, RU143, RU177; decisions C4, C16."""

import grpc
import pytest
from msgspec.structs import replace
from turnwright_values.store import SetEntry
from turnwright_values.types import State, Visibility

from contract.assembler.stack import at, part
from turnwright_core.chat.prompt_edits import append, prepend
from turnwright_core.limits import PROMPT_EDITS_MAX
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.wire.entries import write_from_pb
from turnwright_core.wire.prompt_edits import edit_to_pb
from unit.assembler.entries import entry
from unit.assembler.test_transcript_rows import prompt, record, reply

pytestmark = pytest.mark.asyncio

BIG = "fact " * 400
PROMPT = entry("prompt://1", "mend it", position=1, turn=1, mode="act")
TURN = [
    entry("known://new", BIG, position=4, turn=2),
    entry("src/a.py", BIG, position=5, turn=2),
    entry("log://turn_2/get/a", BIG, position=6, turn=2, tool="get", state=State.FAILED, outcome="not_found:404"),
    entry("sh://turn_2/live_1", BIG, position=7, turn=2, state=State.STREAMING),
]
ROWS = [PROMPT, entry("known://old", BIG, position=2, turn=1), *TURN]


def effects(answer):
    return [write_from_pb(write) for write in answer.effects]


async def test_a_turn_whose_results_fit_keeps_them(store, client):
    store.says(part(*ROWS, cursor=at(1)))
    answer = await client.check_budget(turn=2)
    assert (effects(answer), answer.ceiling) == ([], 90_000)


async def test_what_the_turn_brought_is_summarized_and_nothing_else_of_it_changes(store, client):
    # RU142, RU143, RU177: visibility alone, of this turn alone, whatever the state
    store.says(part(*ROWS, cursor=at(1)))
    answer = await client.check_budget(turn=2, context_length=4_000)
    *demotions, told = effects(answer)
    assert [(write.path, write.change) for write in demotions] == [
        (one.path, SetEntry(visibility=Visibility.SUMMARIZED)) for one in TURN
    ]
    assert (told.path, told.change.state, told.change.outcome, told.change.visibility) == (
        "log://turn_2/error/budget_turn", State.FAILED, "budget:413", Visibility.VISIBLE,
    )  # fmt: skip
    assert all(f"* {one.path}" in told.change.body for one in TURN)
    assert f"{answer.tokens} tokens, {answer.tokens - 3600} over the ceiling of 3600" in told.change.body


async def test_a_turn_that_is_at_the_ceiling_fits(store, client):
    for _ in range(2):
        store.says(part(*ROWS, cursor=at(1)))
    tokens = (await client.check_budget(turn=2)).tokens
    # the figures of the budget section are part of what they count
    exact = await client.check_budget(turn=2, context_length=tokens * 10 // 9 + 1)
    assert (effects(exact), exact.ceiling >= exact.tokens) == ([], True)


async def test_the_prompt_of_the_loop_and_plans_stay_as_they_are(store, client):
    # C4, C34
    rows = [PROMPT, entry("plan://main", BIG, position=2, turn=1), entry("known://a", BIG, position=3, turn=1)]
    store.says(part(*rows, cursor=at(1)))
    answer = await client.check_budget(turn=1, context_length=600)
    assert [write.path for write in effects(answer)] == ["known://a", "log://turn_1/error/budget_turn"]


async def test_a_turn_that_brought_nothing_leaves_no_error(store, client):
    store.says(part(*ROWS, cursor=at(1)))
    answer = await client.check_budget(turn=3, context_length=2_000)
    assert (effects(answer), answer.tokens > answer.ceiling) == ([], True)


async def test_what_the_vendor_counted_decides(store, client):
    # C16
    for _ in range(3):
        store.says(part(*ROWS, cursor=at(1)))
    tight = (await client.check_budget(turn=2)).tokens * 10 // 9 + 2
    plain = await client.check_budget(turn=2, context_length=tight)
    calibrated = await client.check_budget(turn=2, context_length=tight, calibration=1.5)
    assert (len(effects(plain)), len(effects(calibrated))) == (0, 5)


async def test_edits_take_room_from_what_the_turn_brought(store, client):
    # OM27: what edits add to the next packet is counted as what it would be sent with
    for _ in range(4):
        store.says(part(*ROWS, cursor=at(1)))
    edits = [edit_to_pb(append("user", "word " * 400)), edit_to_pb(replace(prepend("user", "x" * 99), plugin="p"))]
    tight = (await client.check_budget(turn=2)).tokens * 10 // 9 + 2
    plain = await client.check_budget(turn=2, context_length=tight)
    edited = await client.check_budget(turn=2, context_length=tight, edits=edits)
    assert (len(effects(plain)), len(effects(edited))) == (0, 5)
    assert edited.tokens - plain.tokens > (400 * len("word ") + 99) // 2
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.check_budget(edits=[edits[0]] * (PROMPT_EDITS_MAX + 1))
    assert from_rpc(refused.value, "assembler", "here").metadata["field"] == "edits"


async def test_edits_take_room_from_a_transcript(store, client):
    turns = [one for turn in range(1, 6) for one in (reply(turn, 1), record(turn, 0, "r" * 2000))]
    for _ in range(3):
        store.says(part(prompt(), *turns, cursor=at(1)))
    asked = {"turn": 5, "transcript": True, "output_reserve": 1000}
    tokens = (await client.check_budget(**asked)).tokens
    window = (tokens + 500) * 10 // 9 + 1000
    edits = [edit_to_pb(append("user", "word " * 800))]
    plain = await client.check_budget(**asked, context_length=window)
    edited = await client.check_budget(**asked, context_length=window, edits=edits)
    assert (plain.summarize, edited.summarize) == (False, True)
    assert edited.tokens - plain.tokens > 800 * len("word ") // 2


async def test_a_malformed_question_is_refused_before_anything_is_read(store, client):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.check_budget(turn=0)
    assert (from_rpc(refused.value, "assembler", "here").metadata["field"], store.requests) == ("turn", [])
