"""What a person is shown of replies that are given up and begun again: nothing twice (AG07)."""

import pytest
from turnwright.types.v1 import delta_pb2, entry_pb2

from turnwright_acp.updates import TextUpdates

PATH = "assistant://1"


def told(*steps):
    """What an editor is told: `begin`, pieces of text, and the whole text as `(how, text)`."""
    texts, found = TextUpdates(), []
    for step in steps:
        match step:
            case "begin":
                texts.begin(1)
            case int(chars):
                found += texts.grown(1, delta_pb2.Delta(take_back=delta_pb2.TakenBack(chars=chars)))
            case str(piece):
                found += texts.grown(1, delta_pb2.Delta(append_content=piece))
            case ("seen", text):
                found += texts.to(PATH, text)
            case ("whole", text):
                found += texts.whole(entry_pb2.Entry(path=PATH, scheme="assistant", body=text))
    return [(one["messageId"], one["content"]["text"]) for one in found]


AGAIN, THIRD = f"{PATH}#1", f"{PATH}#2"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (("begin", "One", " two", ("whole", "One two")), [(PATH, "One"), (PATH, " two")]),
        (("begin", "One t", "begin", "On", "e t", "wo", ("whole", "One two")), [(PATH, "One t"), (PATH, "wo")]),
        (("begin", "One t", "begin", "One two"), [(PATH, "One t"), (PATH, "wo")]),
        (("begin", "One t", "begin", "O", "begin", "One", " two"), [(PATH, "One t"), (PATH, "wo")]),
        (("begin", "One t", "begin", ("whole", "One two")), [(PATH, "One t"), (PATH, "wo")]),
        (("begin", "One t", "begin", "One", ("whole", "One")), [(PATH, "One t")]),
        (("begin", "One t", "begin", "On", "ce", " more"), [(PATH, "One t"), (AGAIN, "Once"), (AGAIN, " more")]),
        (("begin", "One", "begin", "Two", "begin", "Three"), [(PATH, "One"), (AGAIN, "Two"), (THIRD, "Three")]),
        (("begin", "One t", "begin", ("whole", "Other")), [(PATH, "One t"), (AGAIN, "Other")]),
        # Events were missed: a snapshot tells how far the reply is.
        (("begin", "One", ("seen", "One two"), " three"), [(PATH, "One"), (PATH, " two"), (PATH, " three")]),
        (("begin", "One t", ("seen", "On"), "e two"), [(PATH, "One t"), (PATH, "wo")]),
        (("begin", "One t", ("seen", ""), "One", " two"), [(PATH, "One t"), (PATH, "wo")]),
        (("begin", "One t", ("seen", "Once"), " more"), [(PATH, "One t"), (AGAIN, "Once"), (AGAIN, " more")]),
        (("begin", "One t", ("whole", "Other"), ("whole", "Other")), [(PATH, "One t"), (AGAIN, "Other")]),
        # What was shown cannot be taken back.
        (("begin", "One <s", 2, "two", ("whole", "One two")), [(PATH, "One <s"), (PATH, "two")]),
    ],
)
def test_what_begins_again_is_told_from_where_it_goes_on(steps, expected):
    assert told(*steps) == expected
