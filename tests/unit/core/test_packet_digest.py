"""The digest of a packet says which text was sent, and nothing of the pieces that it was sent in."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.packet_digest import packet_digest

pieces = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=70)


@given(pieces, pieces)
def test_it_is_that_of_roles_lengths_and_texts(system, user):
    known = hashlib.sha256()
    for role, texts in (("system", system), ("user", user)):
        content = "".join(texts).encode()
        known.update(b"%s:%d\n%s" % (role.encode(), len(content), content))
    assert packet_digest((("system", system), ("user", user))) == known.hexdigest()


def test_the_length_keeps_texts_apart():
    assert packet_digest((("user", ("a",)), ("user", ("b",)))) != packet_digest((("user", ("auser:1\nb",)),))
