"""No reply of a vendor raises anything but a classified error, grows beyond what came, or is more than can go back.

Every recorded reply of every wire, with seeded damage. `TURNWRIGHT_DAMAGE` is how often each is damaged.
"""

import json
import os

import pytest
from turnwright_values.provider import Finish

from cases import NEEDS_SHARED
from turnwright_core.chat.message import Message, Role, Text, text_message
from turnwright_core.chat.reply import PartialReply
from turnwright_core.wire.deltas import delta_from_pb, delta_to_pb
from turnwright_core.wire.messages import message_from_pb, message_to_pb
from turnwright_provider.domain.failures import Failure, VendorError
from turnwright_provider.domain.model_call import ModelCall, VendorEvent
from turnwright_provider.domain.wires.wire import Wire
from unit.provider.damaged_replies import WIRES, damaged, reader_of, replies

SEEDS = int(os.environ.get("TURNWRIGHT_DAMAGE", "2"))
CASES = [pytest.param(api, case, id=name) for api in WIRES for name, case in replies(api).items()]
USER = text_message(Role.USER, "hi")


def heard(body: bytes, wire: Wire) -> tuple[list[VendorEvent], Failure | None]:
    """What a caller hears of an answer, streamed or whole, and how it failed."""
    events: list[VendorEvent] = []
    fold, reader = wire.fold(), reader_of(wire)
    try:
        for event in (*reader.feed(body), *reader.end()):
            events += fold.event(event)
        events += fold.close()
    except VendorError as error:
        events += fold.flush()
        return events, error.failure
    return events, None


@pytest.mark.parametrize(("api", "case"), CASES)
def test_a_damaged_reply_is_a_reply_or_a_classified_failure(api, case):
    wire = WIRES[api]
    for seed in range(SEEDS):
        body = damaged(case, wire, seed)
        events, failure = heard(body, wire)
        assert failure is None or failure.detail
        assert sum(isinstance(event, Finish) for event in events) == (failure is None)

        reply = PartialReply()
        for event in events:
            if isinstance(event, Finish):
                assert event is events[-1]
                continue
            # Each increment fits into a message of the contract, and comes out as it went in.
            assert delta_from_pb(delta_to_pb(event)) == event
            reply.add(event)
        message = reply.message("v/m")
        assert len(message.text) + len(message.reasoning) <= 4 * len(body) + 100
        assert message_from_pb(message_to_pb(message)) == message
        goes_back(message, wire)


def goes_back(message: Message, wire: Wire) -> None:
    answers = [Message(Role.TOOL, (Text("done"),), call_id=call.id or call.call_id) for call in message.calls]
    call = ModelCall("m", (USER, message, *answers, USER), vendor_model="v/m")
    assert isinstance(json.loads(wire.request(call, frozenset()).body), dict)


@NEEDS_SHARED
@pytest.mark.parametrize("api", WIRES)
def test_damage_leaves_some_replies_whole_and_breaks_others(api):
    outcomes = {heard(damaged(case, WIRES[api], 0), WIRES[api])[1] is None for case in replies(api).values()}
    assert outcomes == {True, False}


@pytest.mark.parametrize(("api", "case"), CASES)
def test_a_damaged_body_in_one_piece_is_a_reply_or_a_classified_failure(api, case):
    wire = WIRES[api]
    for seed in range(SEEDS):
        for line in damaged(case, wire, seed).splitlines()[:20]:
            try:
                body = json.loads(line.removeprefix(b"data:"))
            except ValueError:
                continue
            fold = wire.fold()
            try:
                events = [*fold.whole(body), *fold.close()]
            except VendorError as error:
                assert error.failure.detail  # noqa: PT017 - either outcome is right
            else:
                assert isinstance(events[-1], Finish)
