"""The digest of a packet is what anybody computes who has its pieces, and goes on from those of the packet before."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.packet_digest import MessageDigest, packet_digest, piece_digest

pieces = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=70)


@given(pieces, pieces)
def test_it_is_over_the_digests_of_messages_and_their_pieces(system, user):
    known = hashlib.sha256()
    for role, texts in (("system", system), ("user", user)):
        digests = b"".join(hashlib.sha256(text.encode()).digest() for text in texts)
        known.update(f"{role} {hashlib.sha256(digests).hexdigest()}\n".encode())
    assert packet_digest((("system", system), ("user", user))) == known.hexdigest()


@given(st.lists(st.tuples(st.integers(0, 9), st.lists(st.sampled_from("abc"), max_size=4)), max_size=9))
def test_one_that_goes_on_is_the_one_that_is_made_anew(changes):
    going_on, before = MessageDigest(), list[bytes]()
    for same, more in changes:
        now = [*before[:same], *(piece_digest(text) for text in more)]
        assert going_on.digest(now, min(same, len(before))) == MessageDigest().digest(now)
        before = now


def test_another_role_another_order_and_another_cut_are_another_packet():
    same = packet_digest((("user", ("a", "b")),))
    assert same not in {
        packet_digest(other)
        for other in (
            (("system", ("a", "b")),),
            (("user", ("b", "a")),),
            (("user", ("ab",)),),
            (("user", ("a",)), ("user", ("b",))),
        )
    }
