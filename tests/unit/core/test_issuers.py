"""Tokens of a configured issuer, beside an issuer that is away, slow, huge, or replaces its keys."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator

import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec import structs

from oidc_provider import EC, RSA, Provider, published, serving
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_kit.identity.caller import Caller, Kind, Proof
from turnwright_kit.identity.gate import CallerGate
from turnwright_kit.identity.identity_file import IssuerSettings, read_identity_file
from turnwright_kit.identity.issuers import BYTES_MAX, FetchTimes, Issuers

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[Provider]:
    async with serving() as made:
        yield made


@contextlib.asynccontextmanager
async def gate_for(provider: Provider, **times: float) -> AsyncIterator[CallerGate]:
    corp = IssuerSettings("corp", provider.url, "turnwright", principal="email", groups="groups")
    issuers = Issuers([corp], FetchTimes(**{"timeout_s": 60.0, **times}))
    await issuers.start()
    try:
        yield CallerGate("executor", ["s3cret"], issuers=issuers)
    finally:
        await issuers.stop()


def caller_of(gate: CallerGate, token: str) -> Caller:
    return gate.caller((("authorization", f"Bearer {token}"),))


def refused(gate: CallerGate, token: str) -> tuple[Reason, str, str]:
    with pytest.raises(TurnwrightError) as told:
        caller_of(gate, token)
    return told.value.reason, told.value.metadata.get("cause", ""), told.value.message


async def test_claims_are_mapped_by_the_table(provider) -> None:
    async with gate_for(provider) as gate:
        for token in (provider.token(), provider.token(EC, "e1", "ES256"), provider.token(algorithm="RS512")):
            found = caller_of(gate, token)
            assert (found.name, found.groups) == ("corp/ann@corp.example", {"corp/devs"})
            assert (found.kind, found.proof, found.is_root) == (Kind.PERSON, Proof.ISSUER, False)
            assert found.expires_ms == jwt.decode(token, options={"verify_signature": False})["exp"] * 1000
        # What one operator of that name could do is not what this one may.
        assert caller_of(gate, provider.token(email="operator")).name == "corp/operator"


BAD = {
    "another audience": ({"aud": "other"}, "audience"),
    "without an end": ({"exp": None}, "malformed"),
    "expired, 5 minutes ago": ({"exp": int(time.time()) - 300}, "expired"),
    "not yet, by 5 minutes": ({"nbf": int(time.time()) + 86_400}, "not_yet"),
    "another issuer": ({"iss": "https://evil.example"}, "issuer"),
    "no issuer": ({"iss": None}, "issuer"),
    "another key": ({"key": rsa.generate_private_key(65537, 2048)}, "signature"),
    "unknown kid": ({"kid": "r2"}, "unknown_key"),
    "no kid, of several keys": ({"kid": None}, "unknown_key"),
    "a short key": ({"kid": "short"}, "unknown_key"),
    "the kind of another key": ({"key": EC, "algorithm": "ES256"}, "signature"),
    "PSS": ({"algorithm": "PS256"}, "signature"),
    "no principal": ({"email": None}, "malformed"),
    "a principal that is a number": ({"email": 7}, "malformed"),
    "a principal with a line break": ({"email": "a\nb"}, "malformed"),
    "groups that are a text": ({"groups": "devs"}, "malformed"),
}


async def test_a_wrong_token_is_refused_with_what_is_wrong(provider) -> None:
    async with gate_for(provider) as gate:
        for name, (change, cause) in BAD.items():
            assert refused(gate, provider.token(**change))[:2] == (Reason.UNAUTHENTICATED, cause), name


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


async def test_a_public_key_is_no_secret_and_no_algorithm_is_none(provider) -> None:
    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = part({"iss": provider.url, "aud": "turnwright", "email": "ann", "exp": int(time.time()) + 600})
    signing = f"{part({'alg': 'HS256', 'kid': 'r1'})}.{claims}"
    mac = base64.urlsafe_b64encode(hmac.digest(pem, signing.encode(), "sha256")).decode().rstrip("=")
    unsigned = f"{part({'alg': 'none', 'kid': 'r1'})}.{claims}."
    async with gate_for(provider) as gate:
        for token in (f"{signing}.{mac}", unsigned):
            assert refused(gate, token)[:2] == (Reason.UNAUTHENTICATED, "signature")


SHAPES = {
    "Keycloak": (
        "/realms/corp",
        IssuerSettings("corp", "", "turnwright", principal="preferred_username", groups="groups"),
        [published(RSA, "enc", use="enc", alg="RSA-OAEP"), published(RSA, "kc", alg="RS256", x5t="Zk4u")],
        {"kid": "kc"},
        {
            "aud": ["turnwright", "account"], "typ": "Bearer", "azp": "turnwright", "sid": "5d3c", "sub": "f81d4fae",
            "scope": "openid profile", "realm_access": {"roles": ["offline_access"]}, "preferred_username": "alice",
            "groups": ["shop", "platform/sre"], "jti": "onrtac:1",
        },
        ("corp/alice", {"corp/shop", "corp/platform/sre"}, "corp/onrtac:1"),
    ),
    "Entra ID": (
        "/0b1d/v2.0",
        IssuerSettings("corp", "", "6731de76-14a6", principal="oid", groups="groups"),
        [published(RSA, "en", x5c="MIIC", issuer="https://login.example.com/{tenantid}/v2.0")],
        {"kid": "en"},
        {
            "aud": "6731de76-14a6", "ver": "2.0", "tid": "0b1d", "oid": "690222be", "preferred_username": "a@corp.example",
            "groups": ["9c5f"], "azpacr": "1", "uti": "AbCd", "jti": None,
        },
        ("corp/690222be", {"corp/9c5f"}, ""),
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
async def test_tokens_of_the_shape_of_common_providers_are_read(provider, shape) -> None:
    path, settings, keys, header, claims, expected = SHAPES[shape]
    provider.url, provider.keys = provider.url + path, keys
    issuers = Issuers([structs.replace(settings, url=provider.url)], FetchTimes(timeout_s=60.0))
    await issuers.start()
    try:
        found = caller_of(CallerGate("executor", ["s3cret"], issuers=issuers), provider.token(**header, **claims))
    finally:
        await issuers.stop()
    assert (found.name, found.groups, found.token) == expected
    assert provider.asked == [f"{path}/.well-known/openid-configuration", f"{path}/keys"]


async def test_a_key_that_is_new_is_fetched_and_the_caller_told_to_come_again(provider) -> None:
    fresh = rsa.generate_private_key(65537, 2048)
    token = provider.token(fresh, "r2")
    async with gate_for(provider, unknown_every_s=-1.0) as gate:
        provider.keys.append(published(fresh, "r2"))
        reason, _, message = refused(gate, token)
        assert (reason, "corp" in message) == (Reason.SERVICE_UNAVAILABLE, True)
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(TurnwrightError):
                    assert caller_of(gate, token).name == "corp/ann@corp.example"
                    break
                await asyncio.sleep(0.01)


async def test_made_up_key_ids_do_not_have_keys_fetched_again_and_again(provider) -> None:
    async with gate_for(provider) as gate:
        for number in range(20):
            assert refused(gate, provider.token(kid=f"k{number}"))[1] == "unknown_key"
    assert len(provider.asked) == 2


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503}, {"body": b"x" * (BYTES_MAX + 1)}, {"body": b"[]"}, {"body": b"{"}, {"body": b"[" * 9000},
        {"keys": [{"kty": "RSA"}] * 65},
    ],
    ids=["away", "huge", "a list", "broken", "deep", "many keys"],
)  # fmt: skip
async def test_an_issuer_that_publishes_no_keys_is_named_and_others_are_served(provider, fault) -> None:
    vars(provider).update(fault)
    async with gate_for(provider) as gate:
        reason, _, message = refused(gate, provider.token())
        assert (reason, "The keys of the issuer corp are not known" in message) == (Reason.SERVICE_UNAVAILABLE, True)
        assert caller_of(gate, "s3cret").is_root


async def test_an_issuer_that_hangs_delays_the_start_by_so_much(provider) -> None:
    provider.hangs = True
    async with gate_for(provider, timeout_s=0.05) as gate:
        assert refused(gate, provider.token())[0] is Reason.SERVICE_UNAVAILABLE


@pytest.mark.parametrize(("kept_s", "is_known"), [(86_400.0, True), (-1.0, False)])
async def test_keys_outlive_their_issuer_for_a_while(provider, kept_s, is_known) -> None:
    async with gate_for(provider, kept_s=kept_s) as gate:
        provider.status = 503
        [issuer] = gate._issuers._issuers.values()
        await issuer.fetch()
        if is_known:
            assert caller_of(gate, provider.token()).name == "corp/ann@corp.example"
        else:
            assert refused(gate, provider.token())[0] is Reason.SERVICE_UNAVAILABLE


WHOLE = """
[[issuer]]
name = "corp"
url = "https://id.example.com"
audience = "turnwright"
principal = "email"
groups = "groups"
"""


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("[[issuer]]", "[[issuer", "cannot be read"),
        ("audience", "audiance", "audiance"),
        ('name = "corp"', 'name = "a/b"', "no slash"),
        ("https://id", "http://id", "with https"),
        ('groups = "groups"', 'kind = "service"', "of no service"),
        ('groups = "groups"', 'kind = "root"', "kind"),
        ("[[issuer]]", f"{WHOLE}[[issuer]]", "stands there once"),
    ],
)
async def test_a_file_with_a_fault_says_where(tmp_path, before, after, problem) -> None:
    file = tmp_path / "identity.toml"
    file.write_text(WHOLE)
    assert [one.name for one in read_identity_file(file, is_needed=True).issuer] == ["corp"]
    file.write_text(WHOLE.replace(before, after))
    with pytest.raises(ValueError, match=r"identity\.toml") as told:
        read_identity_file(file, is_needed=False)
    assert problem in str(told.value)


async def test_a_file_that_is_named_has_to_be_there(tmp_path) -> None:
    assert read_identity_file(tmp_path / "identity.toml", is_needed=False).issuer == []
    with pytest.raises(ValueError, match="TURNWRIGHT_IDENTITY names it"):
        read_identity_file(tmp_path / "identity.toml", is_needed=True)
