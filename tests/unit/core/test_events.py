"""Events as entries: what is too long in what the runtime itself tells is cut, never refused."""

import json

import pytest
from turnwright_values.types import Tier

from turnwright_core.events import CUT, RunEvent, Subkind, event_write, payload_bytes, truncate_payload
from turnwright_core.limits import EVENT_PAYLOAD_BYTES_MAX, PATH_CHARS_MAX
from turnwright_store.domain.write_rules import check_event


def event(payload, **more):
    return RunEvent(
        **{"subkind": Subkind.TICK, "source": "clock", "sentence": "It ticks.", "slug": "a", **more, "payload": payload}
    )


def test_an_event_is_an_entry_that_the_store_takes():
    write = event_write(7, event({"n": 1}))
    assert (write.path, write.change.body, write.writer) == ("event://turn_7/tick/a", "It ticks.", Tier.SYSTEM)
    assert json.loads(write.change.attributes_json) == {
        "event": {"subkind": "tick", "source": "clock", "payload": {"n": 1}}
    }
    check_event(write.path, write.change)


LONG = [
    {"text": "a" * 70_000},
    {"text": "\x00" * 70_000, "kept": "short"},
    {"one": "é" * 60_000, "two": '"' * 60_000, "flag": True, "count": 3},
    {"paths": [f"src/{n}.py" for n in range(20_000)]},
    {"paths": ["p" * 2048 for _ in range(1000)]},
    {"half": "\ud800" * 30_000},
]


@pytest.mark.parametrize("payload", LONG, ids=range(len(LONG)))
def test_a_payload_that_is_too_long_is_cut_with_a_mark(payload):
    cut = truncate_payload(payload)
    assert EVENT_PAYLOAD_BYTES_MAX // 8 < payload_bytes(cut) <= EVENT_PAYLOAD_BYTES_MAX
    assert CUT in json.dumps(cut)
    assert {key: value for key, value in cut.items() if not isinstance(value, str | list)} == {
        key: value for key, value in payload.items() if not isinstance(value, str | list)
    }
    write = event_write(1, event(payload))
    check_event(write.path, write.change)


def test_a_payload_of_the_limit_is_kept_whole():
    payload = {"text": "a" * (EVENT_PAYLOAD_BYTES_MAX - len('{"text":""}'))}
    assert (truncate_payload(payload), payload_bytes(payload)) == (payload, EVENT_PAYLOAD_BYTES_MAX)


def test_names_that_are_too_long_are_cut():
    write = event_write(1, event({}, source="s" * 500, slug="a" * 5000))
    assert len(write.path) == PATH_CHARS_MAX - 12
    check_event(write.path, write.change)
