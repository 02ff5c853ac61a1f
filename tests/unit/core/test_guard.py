"""What stands around every handler."""

from turnwright_core.kit.guard import _Serializer


def test_a_message_that_goes_to_many_callers_one_after_the_other_is_made_into_bytes_once():
    made = []

    def serialize(message: object) -> bytes:
        made.append(message)
        return str(message).encode()

    serializer = _Serializer(serialize)
    first, second = [1], [1]
    assert [serializer(one) for one in (first, first, second, first)] == [b"[1]"] * 4
    assert [id(one) for one in made] == [id(first), id(second), id(first)]
