"""Tokens: what they stand for, and that nobody can make one up. Architecture 10, 15."""

from __future__ import annotations

import stat
import threading
from contextvars import copy_context

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_kit.home import read_or_make_token
from turnwright_kit.identity.caller import KINDS, Caller, Kind, Proof
from turnwright_kit.identity.gate import CallerGate, LocalIdentity
from turnwright_kit.identity.own_tokens import authenticate, derive_token

SECRET = "s3cret"


def test_the_secret_itself_is_the_operators_token() -> None:
    assert authenticate(SECRET, SECRET) == Caller("operator", Kind.PERSON, Tier.SYSTEM, Proof.SECRET)


@pytest.mark.parametrize("tier", [Tier.MODEL, Tier.CLIENT, Tier.PLUGIN])
def test_a_derived_token_stands_for_its_tier_and_principal(tier) -> None:
    assert authenticate(derive_token(SECRET, KINDS[tier], "ci"), SECRET) == Caller("ci", KINDS[tier], tier)


@pytest.mark.parametrize(("old", "new"), [("client", "system"), ("client", "plugin"), ("ci", "root")])
def test_an_altered_token_is_refused(old, new) -> None:
    assert authenticate(derive_token(SECRET, Kind.PERSON, "ci").replace(old, new, 1), SECRET) is None


def test_a_token_of_another_deployment_is_refused() -> None:
    assert authenticate(derive_token("another", Kind.PERSON, "ci"), SECRET) is None


@given(st.text())
def test_no_text_but_the_secret_is_a_token(text) -> None:
    assert (authenticate(text, SECRET) is None) == (text != SECRET)


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ((), "Send `authorization: Bearer"),
        ((("authorization", SECRET),), "Send `authorization: Bearer"),
        ((("authorization", f"Basic {SECRET}"),), "Send `authorization: Bearer"),
        ((("authorization", "Bearer other"),), "The token does not belong to this deployment"),
    ],
    ids=["none", "bare", "basic", "another's"],
)
def test_who_is_refused_is_told_what_is_wrong_with_the_token(metadata, told) -> None:
    with pytest.raises(TurnwrightError, match=told) as refused:
        CallerGate(SECRET, Tier.CLIENT).admit(metadata)
    assert refused.value.reason is Reason.UNAUTHENTICATED


def test_while_the_secret_is_replaced_tokens_of_both_are_accepted() -> None:
    def admit(token: str) -> str:
        gate = CallerGate("new", Tier.CLIENT, ["old"])
        # In a context of its own: the caller must not stay for other tests.
        sent = (("authorization", f"Bearer {token}"),)
        return copy_context().run(gate.admit, sent)

    assert [admit(token) for token in ("new", "old", derive_token("old", Kind.PERSON, "ci"))] == [
        "operator", "operator", "ci",
    ]  # fmt: skip
    with pytest.raises(TurnwrightError):
        admit("older")


def test_a_peer_of_the_same_process_is_known_by_its_metadata_alone() -> None:
    gate, peer = CallerGate(SECRET, Tier.CLIENT), LocalIdentity()
    own, derived, wrong = (
        (("authorization", f"Bearer {token}"),) for token in (SECRET, derive_token(SECRET, Kind.PERSON, "ci"), "wrong")
    )

    def admit(metadata) -> str:
        return copy_context().run(gate.admit, metadata, peer)

    assert [admit(metadata) for metadata in (own, own, derived, own)] == ["operator", "operator", "ci", "operator"]
    for _ in range(2):
        with pytest.raises(TurnwrightError):
            admit(wrong)
    assert admit(own) == "operator"


@pytest.mark.parametrize("name", ["", "a.b", "a b", "x" * 65, "é", "operator"])
def test_a_principal_that_cannot_stand_in_a_token_is_refused(name) -> None:
    with pytest.raises(ValueError, match="principal"):
        derive_token(SECRET, Kind.PERSON, name)


def test_the_token_file_is_private_and_made_once(tmp_path) -> None:
    found: list[str] = []
    home = tmp_path / "home"
    threads = [threading.Thread(target=lambda: found.append(read_or_make_token(home))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert stat.S_IMODE((home / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert [file.name for file in home.iterdir()] == ["token"]


def test_an_empty_token_file_is_said_to_be_empty(tmp_path) -> None:
    (tmp_path / "token").touch(mode=0o600)
    with pytest.raises(ValueError, match="is empty"):
        read_or_make_token(tmp_path)


def test_a_token_file_that_everybody_may_read_is_refused_with_the_remedy(tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o644)
    with pytest.raises(ValueError, match=f"chmod o-rwx {file}"):
        read_or_make_token(tmp_path)
    file.chmod(0o640)
    assert read_or_make_token(tmp_path) == "secret"
