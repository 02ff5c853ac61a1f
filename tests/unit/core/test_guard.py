"""What stands around every handler."""

from turnwright_kit.guard import SERIALIZED_BYTES_MAX, SERIALIZED_MAX, Serializer


def test_a_message_that_goes_to_many_callers_is_made_into_bytes_once_also_if_some_are_behind():
    made = []

    def serialize(message: list[int]) -> bytes:
        made.append(message)
        return bytes(message[0])

    serializer = Serializer(serialize)
    first, second = [1], [1]
    assert [serializer(one) for one in (first, first, second, first, second)] == [bytes(1)] * 5
    assert [id(one) for one in made] == [id(first), id(second)]
    # Neither many messages nor long ones are kept.
    long = [SERIALIZED_BYTES_MAX + 1]
    assert serializer(long) == serializer(long)
    assert [id(one) for one in made[2:]] == [id(long)] * 2
    for size in range(SERIALIZED_MAX * 3):
        assert serializer([size]) == bytes(size)
    assert len(serializer._latest) <= SERIALIZED_MAX
