"""Fields of a vendor's own request."""

import json

from turnwright_provider.domain.wires.wire import encode_body, with_extra


def test_objects_are_merged_lists_go_on_and_all_else_takes_the_place_of_ours() -> None:
    ours = {"a": {"x": 1, "y": [1]}, "tools": [1], "model": "m", "kept": True, "list": [1], "object": {"x": 1}}
    extra = {"a": {"y": [2], "z": None}, "tools": [2], "model": "n", "new": 1, "list": {"x": 1}, "object": [1]}

    assert with_extra(ours, extra) == {
        "a": {"x": 1, "y": [1, 2], "z": None},
        "tools": [1, 2],
        "model": "n",
        "kept": True,
        "list": {"x": 1},
        "object": [1],
        "new": 1,
    }
    assert ours["a"] == {"x": 1, "y": [1]}


def test_half_a_character_is_sent_as_a_question_mark() -> None:
    assert json.loads(encode_body({"text": "a \ud800 b"}, {"more": "ü"})) == {"text": "a ? b", "more": "ü"}
