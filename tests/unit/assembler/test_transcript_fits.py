"""A transcript over random histories: it fits, pairs stay, nothing is decided twice, and no entry is touched. RL02-RL09."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from turnwright_values.assembler import AssembleRequest
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import CompressionStrength, Entry, RequestKind, State, Visibility

from turnwright_assembler.app.transcript import Transcript, fitting_transcript, needs_summary
from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.ladder import TokenBudget
from turnwright_assembler.ports import ViewPart
from turnwright_core.chat.message import Message, Role
from turnwright_core.chat.prompt_edits import append, append_to, insert_after, prepend
from turnwright_core.chat.transcript import from_json_lines
from turnwright_core.delta_encoding import decode
from turnwright_core.packet_digest import packet_digest
from unit.assembler.entries import entry
from unit.assembler.test_transcript_rows import prompt, record, reply, rows_of

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "transcript.txt"
DIVISOR = 2


def ask(turn: int = 99, **more: object) -> AssembleRequest:
    return AssembleRequest("p", "r", turn, 1, 10**6, transcript=True, **more)  # type: ignore[arg-type]


def fit(rows: TranscriptRows, ceiling: int, **more: object) -> Transcript:
    return fitting_transcript(rows, ask(**more), DIVISOR, TokenBudget(ceiling))


def messages_of(made: Transcript) -> list[Message]:
    return from_json_lines("".join(piece for piece in dict(made.messages)["conversation"] if isinstance(piece, str)))


def written(entries: list[Entry], writes: tuple[EntryWrite, ...]) -> list[Entry]:
    """The entries after these writes, as the store would have them."""
    by_path = {one.path: one for one in entries}
    for write in writes:
        assert isinstance(write.change, SetEntry)
        before = by_path.get(write.path) or entry(write.path, write.change.body or "", position=10**6)
        shown = write.change.visibility or before.visibility
        attributes = write.change.attributes_json or before.attributes_json
        by_path[write.path] = replace(before, visibility=shown, attributes_json=attributes)
    return list(by_path.values())


def check_shape(messages: list[Message]) -> None:
    waiting: list[str] = []
    for message in messages:
        if message.role is Role.TOOL:
            assert message.call_id == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call.call_id for call in message.calls]
    assert not waiting
    assert not messages or messages[0].role is Role.USER


SIZES = st.integers(1, 3000)


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    found = [prompt(1, "p" * draw(SIZES))]
    for turn in range(1, draw(st.integers(2, 9))):
        calls = draw(st.integers(0, 3))
        found.append(reply(turn, calls, draw(st.sampled_from(["", "I look.", "x" * 500]))))
        found += [
            record(turn, place, "r" * draw(SIZES), state=draw(st.sampled_from([State.RESOLVED, State.FAILED])))
            for place in range(calls)
            if draw(st.integers(0, 9))
        ]
        for place in range(draw(st.integers(0, 2))):
            told = {"subkind": draw(st.sampled_from(["tick", "tool_decision"])), "source": "s", "payload": {}}
            path = f"event://turn_{turn}/{told['subkind']}/{place}"
            found.append(entry(path, "e" * draw(st.integers(1, 200)), position=100 * turn + 60 + place, event=told))
        if draw(st.integers(0, 3)) == 0:
            found.append(
                replace(prompt(turn, "q" * draw(SIZES)), position=100 * turn + 80, path=f"prompt://{turn + 50}")
            )
    results = [one.path for one in found if one.record]
    demoted = draw(st.lists(st.sampled_from(results), unique=True)) if results else []
    return summarized_by_packet(found, demoted)


def summarized_by_packet(entries: list[Entry], paths: list[str], turn: int = 20) -> list[Entry]:
    """The entries after a turn whose packet did not fit, with the error entry that tells of it."""
    told = {"tool": "error", "target": "budget", "step": 6, "summarized": [*paths, "a.txt"]}
    path = f"log://turn_{turn}/error/budget_earlier_turns"
    error = entry(path, "Summarized.", outcome="budget:413", state=State.FAILED, turn=turn, position=100 * turn, **told)
    shown = [replace(one, visibility=Visibility.SUMMARIZED) if one.path in paths else one for one in entries]
    return [*shown, error] if paths else entries


@given(histories(), st.integers(50, 6000), st.sampled_from([0, 0, 90]))
def test_it_fits_or_says_what_is_in_the_way_and_is_the_same_again(entries, room, broken_in):
    rows = rows_of(*entries)
    before = dict(rows.entries), list(rows.conversation.pieces)
    whole = fit(rows, 10**9)
    made = fit(rows, whole.tokens - rows.conversation.chars // DIVISOR + room)
    messages = messages_of(made)
    check_shape(messages)
    # The rows are as they were: nothing is decided until it is written.
    rows.conversation.compose()
    assert rows.entries == before[0]
    if made.unfit:
        assert made.tokens == whole.tokens
        assert [write.path for write in made.effects] == ["log://turn_99/error/budget_overflow"]
        return
    assert made.tokens <= whole.tokens - rows.conversation.chars // DIVISOR + room
    assert (made.strength is CompressionStrength.ABSENT) == (made.evicted is None)
    hidden = {one.path for one in entries if one.visibility is Visibility.SUMMARIZED}
    assert hidden == {*made.restored, *(hidden & set(made.evicted.stage_of if made.evicted else ()))}
    after = written(entries, made.effects)
    # Views change, and bodies never.
    assert {one.path: one.body for one in entries} == {one.path: one.body for one in after if one.path in before[0]}
    # With room to spare: what the model has not read yet makes way for the turns that are to pass.
    cold = fit(rows_of(*sorted(after, key=lambda one: one.position)), 2 * whole.tokens)
    assert messages_of(cold) == messages
    assert not cold.effects
    assert cold.strength <= made.strength
    undone = [replace(one, visibility=Visibility.VISIBLE) for one in after if one.path in before[0]]
    assert messages_of(fit(rows_of(*undone), 10**9)) == messages_of(whole)


def test_what_a_packet_summarized_stands_whole_again_once_and_what_the_transcript_evicted_or_a_user_hid_does_not():
    calls = [prompt(), reply(1, 4), *(record(1, place, f"{place}" * 2000) for place in range(4))]
    paths = [one.path for one in calls if one.record]
    user_hid = [replace(one, visibility=Visibility.SUMMARIZED) if one.path == paths[3] else one for one in calls]
    entries = summarized_by_packet(user_hid, paths[:3])
    made = fit(rows_of(*entries), 10**9, turn=21)
    assert made.restored == tuple(paths[:3])
    assert [(one.path, one.change.visibility) for one in made.effects] == [
        (path, Visibility.VISIBLE) for path in paths[:3]
    ]
    assert ["left out" in one.text for one in messages_of(made)[2:6]] == [False, False, False, True]
    # What a transcript evicts later stays so: its report is the later one.
    after = written(entries, made.effects)
    tight = fit(rows_of(*after), made.tokens - 1500, turn=22)
    assert (tight.restored, paths[0] in tight.evicted.condensed) == ((), True)
    again = fit(rows_of(*written(after, tight.effects)), 10**9, turn=23)
    assert (again.restored, again.effects) == ((), ())
    # And packets may summarize it once more.
    last = summarized_by_packet(written(after, tight.effects), paths[:1], 30)
    assert fit(rows_of(*last), 10**9, turn=31).restored == (paths[0],)
    # What does not fit whatever is left out leaves everything as it is.
    none = fit(rows_of(*entries), 1, turn=21)
    assert (bool(none.unfit), none.restored, len(none.effects)) == (True, (), 1)


def test_ten_thousand_tiny_messages_fit_a_small_window():
    tiny = [
        entry(f"log://turn_{number}/inject/a", f"{number}", position=number, turn=number, tool="inject")
        for number in range(1, 10_000)
    ]
    rows = rows_of(*tiny, replace(prompt(10_000, "Now?"), position=10_000))
    made = fit(rows, 8000, turn=10_001)
    assert not made.unfit
    assert made.tokens <= 8000
    assert messages_of(made)[0].text.endswith("Now?")
    assert made.strength is CompressionStrength.HIGH


def test_one_reply_with_a_hundred_results_fits_by_condensing_the_largest():
    entries = [prompt(), reply(1, 100), *(record(1, place, "r" * (10 + 100 * place)) for place in range(100))]
    made = fit(rows_of(*entries), 60_000, turn=2)
    messages = messages_of(made)
    check_shape(messages)
    assert not made.unfit
    assert [message.text for message in messages[2:10]] == ["r" * (10 + 100 * place) for place in range(8)]
    assert "left out" in messages[-1].text


def test_a_half_written_reply_is_sent_as_far_as_it_came():
    half = replace(reply(1, 2, "I was about to"), state=State.FAILED)
    rows = rows_of(prompt(), half, replace(record(1, 0, "", state=State.RECORDED)), prompt(2, "Go on."))
    messages = messages_of(fit(rows, 10**6))
    check_shape(messages)
    assert messages[1].text == "I was about to"
    assert [message.failed for message in messages[2:4]] == [True, True]


def test_a_summary_stands_in_place_of_what_it_replaces():
    turns = [one for turn in range(1, 6) for one in (reply(turn, 1), record(turn, 0, "r" * 2000))]
    entries = [prompt(), *turns]
    rows = rows_of(*entries)
    tokens = fit(rows, 10**9).tokens
    budget = TokenBudget(tokens - 2500)
    assert needs_summary(rows, ask(), DIVISOR, budget)
    assert not needs_summary(rows, ask(), DIVISOR, TokenBudget(tokens))
    asked = fitting_transcript(rows, ask(6, kind=RequestKind.COMPACTION), DIVISOR, budget)
    assert "about to be shortened" in messages_of(asked)[-1].text
    archived = [
        write.path
        for write in asked.after_reply
        if isinstance(write.change, SetEntry) and write.change.visibility is Visibility.ARCHIVED
    ]
    assert archived[0] == "assistant://1"
    summary = entry("assistant://6", "It read a lot.", position=600, turn=6, summarizes=archived)
    after = rows_of(*written([*entries, summary], asked.after_reply))
    messages = messages_of(fit(after, budget.ceiling))
    check_shape(messages)
    assert messages[0].text.startswith('Do it.\n\n<summary turn="6">')
    assert "about to be shortened" not in "".join(message.text for message in messages)
    assert len(messages) < len(messages_of(fit(rows, 10**9)))


def test_a_transcript_as_a_model_reads_it():
    plan = {"subkind": "plan_delta", "source": "plan", "payload": {"plan_id": "main", "version": 1, "change": "set"}}
    told = {"subkind": "system_notice", "source": "s", "payload": {"n": 1}}
    entries = [
        prompt(1, "Mend the test."), reply(1, 2, "I look at it."), record(1, 0, "def test(): ..."),
        record(1, 1, "There is no b.txt.", state=State.FAILED),
        entry("event://turn_1/plan_delta/main", "set", position=150, event=plan),
        entry("plan://main", "1. read\n2. mend", position=151),
        entry("event://turn_2/system_notice/a", "The disk is full.", position=160, event=told),
        entry("log://turn_1/inject/a", "Mind the gap.", position=170, tool="inject"),
        reply(2, 1, ""), record(2, 0, "long " * 400, visibility=Visibility.SUMMARIZED), reply(3, 0, "It is mended."),
    ]  # fmt: skip
    shown = []
    for message in messages_of(fit(rows_of(*entries), 10**6)):
        shown.append(f"== {message.role.value} {message.call_id}".rstrip())
        shown += [message.text] if message.text else []
        shown += [f"-> {call.call_id} {call.name} {call.arguments}" for call in message.calls]
    assert "\n".join(shown) + "\n" == GOLDEN.read_text()


# ---- Edits

EDITS = st.sampled_from(
    [
        prepend("user", "a"), append("user", "b"), append_to("last-user", "c"), append_to("last-assistant", "d"),
        insert_after("assistant://1", "assistant", "e"), insert_after("log://turn_1/get/0", "user", "f"),
    ]
)  # fmt: skip


@given(st.lists(st.tuples(st.lists(EDITS, max_size=3), st.integers(0, 2)), min_size=1, max_size=8))
def test_an_edited_transcript_goes_on_from_the_one_before(turns):
    # OM29, OM30: whatever was edited in the turn before, it is what is made anew
    entries = [prompt(), *(one for turn in range(1, 20) for one in (reply(turn, 1), record(turn, 0, "r")))]
    rows, digest, told = rows_of(*entries), "", list[str]()
    for number, (edits, calls) in enumerate(turns, 20):
        made = fit(rows, 10**6, edits=tuple(edits), base_digest=digest, prefill=True)
        cold = fit(rows_of(*entries), 10**6, edits=tuple(edits), prefill=True)
        wanted = [(role, [piece for piece in pieces if isinstance(piece, str)]) for role, pieces in cold.messages]
        assert [(role, list(decode(parts, told))) for role, parts in made.messages] == wanted
        assert made.digest == cold.digest == packet_digest(wanted)
        assert (made.chars, made.edit_tokens) == (cold.chars, cold.edit_tokens)
        digest, told = made.digest, [piece for _, pieces in wanted for piece in pieces]
        more = [reply(number, calls), *(record(number, place, "r") for place in range(calls))]
        entries += more
        rows.apply(ViewPart(tuple(more), (), None))
