"""Tokens: what they stand for, and that nobody can make one up. Architecture 10, 15."""

from __future__ import annotations

import base64
import json
import stat
import threading
import time
from itertools import product

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.rpc.headers import call_metadata
from turnwright_kit.home import read_or_make_token
from turnwright_kit.identity.caller import TIERS, Caller, Kind, Proof
from turnwright_kit.identity.credentials import Credentials
from turnwright_kit.identity.gate import KNOWN_MAX, TOKEN_BYTES_MAX, CallerGate
from turnwright_kit.identity.own_tokens import AUDIENCES, DAY_S, DAYS_MAX, TokenKey, make_token
from turnwright_kit.settings import Settings, SettingsError

SECRET = "s3cret"
NAME = "zz-top"
KEY = TokenKey.of(SECRET, "executor")
ROOT = Caller("operator", Kind.PERSON, Tier.SYSTEM, Proof.SECRET)


def caller_of(token: str, gate: CallerGate | None = None) -> Caller:
    return (gate or CallerGate("executor", [SECRET], Tier.MODEL)).caller((("authorization", f"Bearer {token}"),))


def refused(token: str, gate: CallerGate | None = None) -> tuple[str, str]:
    """Why a token is refused: the cause, and the sentence."""
    with pytest.raises(TurnwrightError) as told:
        caller_of(token, gate)
    assert told.value.reason is Reason.UNAUTHENTICATED
    return told.value.metadata["cause"], told.value.message


def signed(key: object = KEY.value, algorithm: str = "HS256", kid: object = KEY.id, **claims: object) -> str:
    """A token of our form with these claims; None: without the claim."""
    now_s = int(time.time())
    whole = {"iss": "turnwright", "sub": NAME, "kind": "person", "aud": "executor", "iat": now_s, "exp": now_s + 600}
    whole |= {"jti": "t1", **claims}
    body = {name: value for name, value in whole.items() if value is not None}
    return jwt.encode(body, key, algorithm=algorithm, headers={"kid": kid} if kid else {})


def test_the_secret_itself_is_the_operators_token() -> None:
    assert caller_of(SECRET) == ROOT


@pytest.mark.parametrize("kind", Kind)
def test_a_token_says_who_calls_until_when_and_for_which_projects(kind) -> None:
    before_s = int(time.time())
    found = caller_of(make_token(KEY, NAME, kind, 600, projects=["thing"], groups=["devs"]))
    assert (found.name, found.kind, found.tier, found.proof) == (NAME, kind, TIERS[kind], Proof.TOKEN)
    assert (found.projects, found.groups, found.is_root) == ({"thing"}, {"devs"}, False)
    assert before_s <= found.expires_ms / 1000 - 600 <= time.time()
    assert caller_of(make_token(KEY, NAME, kind, 600)).projects is None


def test_tokens_of_one_name_are_told_apart() -> None:
    tokens = [make_token(KEY, NAME, Kind.PERSON, 600) for _ in range(2)]
    assert len({caller_of(token).token for token in tokens}) == 2


def part(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


HEADER = {"alg": "HS256", "kid": KEY.id, "typ": "JWT"}
MINUTES_5 = 300
BAD = {
    "empty": (lambda: "", "missing", "Send `authorization: Bearer"),
    "another secret": (lambda: "other", "unknown_key", "does not belong to this deployment"),
    "old form": (lambda: "tw1.client.ci.0123", "old_form", "turnwright token create --principal ci --project PROJECT"),
    "1 MB": (lambda: "x" * 2**20, "malformed", f"at most {TOKEN_BYTES_MAX} are taken"),
    "broken base64": (lambda: "a.b!.c", "malformed", "not a well-formed JWT"),
    "header is no object": (lambda: f"{part([1])}.{part({})}.x", "malformed", "not a well-formed JWT"),
    "header is deep": (lambda: f"{part(b'[' * 8000)}.{part({})}.x", "malformed", "not a well-formed JWT"),
    "header is not UTF-8": (lambda: f"{part(bytes([255]))}.{part({})}.x", "malformed", "not a well-formed JWT"),
    "body is no JSON": (lambda: jwt.api_jws.encode(b"x", KEY.value, headers=HEADER), "malformed", "well-formed JWT"),
    "body is no object": (lambda: jwt.api_jws.encode(b"[]", KEY.value, headers=HEADER), "malformed", "well-formed JWT"),
    "cut": (lambda: signed().rpartition(".")[0] + ".", "signature", "has been altered"),
    "another body": (
        lambda: ".".join([*signed().split(".")[:1], signed(sub="root").split(".")[1], signed().split(".")[2]]),
        "signature",
        "has been altered",
    ),
    "no kid": (lambda: signed(kid=None), "issuer", "does not belong to this deployment"),
    "kid of an issuer": (lambda: signed(kid="2026-11"), "issuer", "does not belong to this deployment"),
    "unknown kid": (lambda: signed(kid="00000000.executor"), "unknown_key", "not any more"),
    "another deployment": (
        lambda: make_token(TokenKey.of("another", "executor"), NAME, Kind.PERSON, 600),
        "unknown_key",
        "it is of another deployment",
    ),
    "alg none": (lambda: f"{part(HEADER | {'alg': 'none'})}.{part({'sub': NAME})}.", "signature", "not accepted"),
    "another algorithm": (lambda: signed(KEY.value * 2, "HS512"), "signature", "algorithm that is not accepted"),
    "another key": (lambda: signed(b"k" * 32), "signature", "has been altered"),
    "for the store": (
        lambda: make_token(TokenKey.of(SECRET, "store"), NAME, Kind.PERSON, 600),
        "audience",
        "here is the executor: make one with `turnwright token create --principal NAME --audience executor`",
    ),
    "key of here, for the store": (lambda: signed(aud="store"), "audience", "for another audience"),
    "another issuer": (lambda: signed(iss="https://id.example.com"), "issuer", "another issuer"),
    "expired, by a clock 5 minutes off": (lambda: signed(exp=int(time.time()) - MINUTES_5), "expired", "has expired at"),
    "not yet, by a clock 5 minutes off": (
        lambda: signed(iat=int(time.time()) + MINUTES_5), "not_yet", "compare the clocks"
    ),
    "begins later": (lambda: signed(nbf=int(time.time()) + MINUTES_5), "not_yet", "is not valid before"),
    "without an end": (lambda: signed(exp=None), "malformed", "lacks the claim 'exp'"),
    "without a name": (lambda: signed(sub=None), "malformed", "lacks the claim 'sub'"),
    "without an audience": (lambda: signed(aud=None), "malformed", "lacks the claim 'aud'"),
    "without an id": (lambda: signed(jti=None), "malformed", "lacks the claim 'jti'"),
    "end is a text": (lambda: signed(exp="soon"), "malformed", "not a well-formed JWT"),
    "of the operator": (lambda: signed(sub="operator"), "malformed", "does not know"),
    "name with a blank": (lambda: signed(sub="a b"), "malformed", "does not know"),
    "unknown kind": (lambda: signed(kind="root"), "malformed", "does not know"),
    "projects are a text": (lambda: signed(prj="thing"), "malformed", "does not know"),
    "groups are numbers": (lambda: signed(grp=[1]), "malformed", "does not know"),
}  # fmt: skip
"""Tokens that are refused, with the cause and what the sentence says."""


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_token_is_refused_with_what_is_wrong(name) -> None:
    make, cause, told = BAD[name]
    found, message = refused(make())
    assert (found, told in message, NAME in message) == (cause, True, False), message


def test_clocks_may_differ_by_a_minute() -> None:
    now_s = int(time.time())
    assert caller_of(signed(iat=now_s + 50, nbf=now_s + 50)).name == NAME
    assert caller_of(signed(exp=now_s - 1)).name == NAME


@given(st.text())
def test_no_text_but_the_secret_is_a_token(text) -> None:
    gate = CallerGate("executor", [SECRET])
    if text == SECRET:
        assert caller_of(text, gate) == ROOT
    else:
        refused(text, gate)


@pytest.mark.parametrize("sent", [(), (("authorization", SECRET),), (("authorization", f"Basic {SECRET}"),)])
def test_a_call_without_a_bearer_is_told_what_to_send(sent) -> None:
    with pytest.raises(TurnwrightError, match="Send `authorization: Bearer") as told:
        CallerGate("executor", [SECRET]).caller(sent)
    assert told.value.metadata == {"cause": "missing"}


def test_each_audience_has_a_key_of_its_own() -> None:
    keys = {TokenKey.of(secret, audience).value for secret in (SECRET, "new") for audience in AUDIENCES}
    assert len(keys) == 2 * len(AUDIENCES)
    for audience in AUDIENCES:
        key = TokenKey.of(SECRET, audience)
        assert TokenKey.parse(key.text) == key
        # Who has this key, and no secret, verifies the tokens of its audience alone.
        gate = CallerGate(audience, (), keys=[TokenKey.of(SECRET, each) for each in AUDIENCES])
        assert caller_of(make_token(key, NAME, Kind.PERSON, 60), gate).name == NAME
        assert refused(SECRET, gate)[0] == "unknown_key"


@pytest.mark.parametrize(
    "text", ["", "executor", "executor:", "executor:AAAA", "admin:" + "A" * 43, "executor:" + "!" * 43]
)
def test_a_broken_key_is_refused_with_where_it_comes_from(text) -> None:
    with pytest.raises(ValueError, match="turnwright token key SERVICE"):
        TokenKey.parse(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [("keys", "executor:AAAA"), ("keys", f"{KEY.text},x"), ("peer_tokens", "admin=x"), ("peer_tokens", "store="),
     ("peer_tokens", "store=a\nb")],
)  # fmt: skip
def test_a_setting_that_holds_no_keys_or_tokens_is_refused_and_not_shown(name, value) -> None:
    with pytest.raises(SettingsError, match=f"TURNWRIGHT_{name.upper()}: must be") as told:
        Settings(**{name: value})
    assert value not in str(told.value)


def test_keys_and_tokens_of_settings_are_told_apart_by_their_service(tmp_path) -> None:
    keys = [TokenKey.of(secret, "executor") for secret in ("old", "new")]
    read = Settings(home=tmp_path, keys=",".join(key.text for key in keys), peer_tokens="store=a,provider=b")
    assert read.token_keys == tuple(keys)
    assert [read.peer_token(service) for service in AUDIENCES] == ["", "a", "", "b", ""]
    assert not any(key.text in repr(read) for key in keys)


def test_while_the_secret_is_replaced_tokens_of_both_are_accepted() -> None:
    gate = CallerGate("executor", ["new", "old"])
    of_old = make_token(TokenKey.of("old", "executor"), NAME, Kind.PERSON, 60)
    assert [caller_of(token, gate).name for token in ("new", "old", of_old)] == ["operator", "operator", NAME]
    after = CallerGate("executor", ["new"])
    assert {refused(token, after)[0] for token in ("old", of_old)} == {"unknown_key"}


def test_one_token_can_be_revoked_alone() -> None:
    gate = CallerGate("executor", [SECRET])
    first, second = (make_token(KEY, NAME, Kind.PERSON, 60) for _ in range(2))
    gate.revoked = frozenset({caller_of(first, gate).token})
    assert refused(first, gate)[0] == "revoked"
    assert caller_of(second, gate).name == NAME


def test_who_is_remembered_is_who_sends_the_same() -> None:
    gate = CallerGate("executor", [SECRET], Tier.MODEL)
    plugin = make_token(KEY, NAME, Kind.PLUGIN, 60)
    for _ in range(2):
        assert gate.caller(call_metadata(plugin)).tier is Tier.PLUGIN
        assert gate.caller(call_metadata(plugin, Tier.MODEL)).tier is Tier.MODEL
        with pytest.raises(TurnwrightError) as told:
            gate.caller(call_metadata(plugin, Tier.SYSTEM))
        assert told.value.reason is Reason.TIER_FORBIDDEN


def test_a_remembered_token_still_expires() -> None:
    gate = CallerGate("executor", [SECRET])
    caller_of(make_token(KEY, NAME, Kind.PERSON, 600), gate)
    [known] = gate._known.values()
    over = signed(exp=int(time.time()) - 300)
    # As if it had been verified in time.
    gate._known[f"Bearer {over}", None, None] = structs.replace(known, expires_ms=int(time.time() - 300) * 1000)
    assert refused(over, gate)[0] == "expired"


def spelled(word: str) -> list[str]:
    """With each choice of capitals."""
    return ["".join(letters) for letters in product(*zip(word, word.upper(), strict=True))]


def test_so_many_tokens_are_remembered() -> None:
    gate = CallerGate("executor", [SECRET])
    sent = product(spelled("bearer"), [*spelled("client"), "system"])
    for scheme, tier in sent:
        gate.caller((("authorization", f"{scheme} {SECRET}"), ("turnwright-tier", tier)))
    assert len(gate._known) == KNOWN_MAX


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "é", "operator", "store", "corp/ann"])
def test_a_principal_that_cannot_stand_in_a_token_is_refused(name) -> None:
    with pytest.raises(ValueError, match="principal"):
        make_token(KEY, name, Kind.PERSON, 60)


@pytest.mark.parametrize("lasts_s", [0, -1, DAYS_MAX * DAY_S + 1])
def test_a_token_has_an_end_within_reach(lasts_s) -> None:
    with pytest.raises(ValueError, match="at most 400 days"):
        make_token(KEY, NAME, Kind.PERSON, lasts_s)


def test_a_token_names_so_many_projects() -> None:
    assert caller_of(make_token(KEY, NAME, Kind.PERSON, 60, projects=[f"p{n}" for n in range(64)])).projects
    with pytest.raises(ValueError, match="at most 64 projects"):
        make_token(KEY, NAME, Kind.PERSON, 60, projects=[f"p{n}" for n in range(65)])


def named(**fields: object) -> str:
    """A caller as the header `turnwright-for` has it."""
    whole = {"name": "ann", "kind": "person", "tier": 2, "proof": "token", **fields}
    return base64.urlsafe_b64encode(json.dumps(whole).encode()).decode()


EXECUTOR = make_token(KEY, "executor", Kind.SERVICE, DAY_S)


def test_a_service_calls_for_somebody_and_says_who() -> None:
    ann = Caller("ann", Kind.PERSON, Tier.CLIENT, groups=frozenset({"devs"}), token="t9", projects=frozenset({"thing"}))
    credentials = Credentials(SECRET, "executor", service="store")
    gate = CallerGate("executor", [SECRET])
    assert gate.caller(credentials.metadata(ann)) == structs.replace(ann, by="store")
    assert gate.caller(credentials.metadata(ROOT)) == structs.replace(ROOT, by="operator")
    own = gate.caller(credentials.metadata())
    assert (own.name, own.kind, own.by) == ("store", Kind.SERVICE, "")
    # What it is for itself, and for whom it calls, within one process.
    assert (credentials.caller(ann), credentials.caller(None).kind) == (structs.replace(ann, by="store"), Kind.SERVICE)


def test_a_service_without_the_secret_calls_with_the_token_that_it_was_given() -> None:
    given = make_token(TokenKey.of(SECRET, "store"), "executor", Kind.SERVICE, DAY_S)
    credentials = Credentials("of-its-own-home", "store", service="executor", given=given)
    store = CallerGate("store", [SECRET])
    assert store.caller(credentials.metadata()).name == "executor"
    ann = Caller("ann", Kind.PERSON, Tier.CLIENT)
    assert store.caller(credentials.metadata(ann)) == structs.replace(ann, by="executor")
    # Who is root there is not root here.
    with pytest.raises(TurnwrightError) as told:
        store.caller(credentials.metadata(ROOT))
    assert told.value.reason is Reason.RIGHT_MISSING


def test_who_has_too_many_groups_is_told_how_many() -> None:
    crowded = structs.replace(ROOT, groups=frozenset(f"corp/{number:032}" for number in range(400)))
    with pytest.raises(TurnwrightError, match="With its 400 groups") as told:
        Credentials(SECRET, "executor", service="store").metadata(crowded)
    assert told.value.reason is Reason.LIMIT_EXCEEDED


@pytest.mark.parametrize(
    ("token", "text", "reason"),
    [
        (make_token(KEY, "mallory", Kind.PERSON, DAY_S), named(), Reason.RIGHT_MISSING),
        (make_token(KEY, "mallory", Kind.PLUGIN, DAY_S), named(), Reason.RIGHT_MISSING),
        (EXECUTOR, named(name="store", kind="service"), Reason.RIGHT_MISSING),
        (EXECUTOR, named(name="operator", proof="secret"), Reason.RIGHT_MISSING),
        (EXECUTOR, named(name=""), Reason.RIGHT_MISSING),
        (EXECUTOR, named(kind="root"), Reason.INVALID_FIELD),
        (EXECUTOR, named(groups="devs"), Reason.INVALID_FIELD),
        (EXECUTOR, named(tier=9), Reason.INVALID_FIELD),
        (EXECUTOR, named()[:-3], Reason.INVALID_FIELD),
        (EXECUTOR, "a b!", Reason.INVALID_FIELD),
        (EXECUTOR, part(b"[" * 5000), Reason.INVALID_FIELD),
        (EXECUTOR, part([]), Reason.INVALID_FIELD),
    ],
)
def test_nobody_calls_for_whom_it_may_not(token, text, reason) -> None:
    with pytest.raises(TurnwrightError) as told:
        CallerGate("executor", [SECRET]).caller((*call_metadata(token), ("turnwright-for", text)))
    assert told.value.reason is reason


def test_a_header_that_is_there_twice_counts_for_nothing() -> None:
    for header in ("turnwright-for", "turnwright-tier"):
        with pytest.raises(TurnwrightError) as told:
            CallerGate("executor", [SECRET]).caller((*call_metadata(EXECUTOR), (header, named()), (header, named())))
        assert (told.value.reason, told.value.metadata) == (Reason.INVALID_FIELD, {"field": header})


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
