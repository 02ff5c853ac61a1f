"""Tokens of configured issuers: JWTs, signed with RSA or ECDSA, and verified with the keys that they publish (JWKS).

The keys are fetched at the start and every ten minutes, and at once for a key id that is not known, at most every half
minute: a call with such a token is told to come again. While an issuer is away its keys count for another day.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpx
from msgspec import Struct

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_kit.identity.caller import TIERS, Caller, Proof
from turnwright_kit.identity.identity_file import IssuerSettings
from turnwright_kit.identity.own_tokens import LEEWAY_S
from turnwright_kit.identity.refusals import of_jwt, refusal
from turnwright_kit.logs import get_logger

BYTES_MAX: Final = 256 * 1024
"""Longest answer of an issuer."""
KEYS_MAX: Final = 64
RSA_BITS_MIN: Final = 2048
NAME_CHARS_MAX: Final = 256
"""Longest principal or group."""

_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
}
"""By the type of a key, or its curve. What a token says of its algorithm counts for nothing else."""

_log = get_logger("issuers")


class FetchTimes(Struct, frozen=True):
    """When keys are fetched, in seconds."""

    timeout_s: float = 5.0
    every_s: float = 600.0
    unknown_every_s: float = 30.0
    """Between two fetches for key ids that are not known."""
    kept_s: float = 86_400.0
    """For so long keys count that could not be fetched again."""


class Issuer:
    """One issuer, and its keys as they were published last."""

    def __init__(self, settings: IssuerSettings, times: FetchTimes) -> None:
        self.settings = settings
        self._times = times
        self._keys: dict[str, tuple[Any, tuple[str, ...]]] = {}
        self._fetched_s = float("-inf")
        self._tried_s = float("-inf")
        self._problem = "its keys have not been fetched yet"
        self._fetching: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        """Fetch its keys again and again."""
        while True:
            await asyncio.sleep(self._times.every_s)
            await self.fetch()

    async def fetch(self) -> None:
        self._tried_s = time.monotonic()
        try:
            async with (
                asyncio.timeout(self._times.timeout_s),
                httpx.AsyncClient(timeout=self._times.timeout_s) as client,
            ):
                self._keys = _read_keys(await _published(client, self.settings))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, RecursionError) as error:
            self._problem = f"{type(error).__name__}: {error}"
            _log.warning("issuer_keys_missed", issuer=self.settings.name, problem=self._problem)
        else:
            self._fetched_s, self._problem = time.monotonic(), ""

    def caller(self, token: str, key_id: object) -> Caller:
        """Who a token is of. Raises UNAUTHENTICATED, or SERVICE_UNAVAILABLE while its key may yet become known."""
        import jwt  # noqa: PLC0415 - loads cryptography; who has the secret needs neither

        found = self._key(key_id)
        if found is None:
            raise self._unknown()
        key, algorithms = found
        settings = self.settings
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token, key, algorithms=list(algorithms), audience=settings.audience, issuer=settings.url,
                leeway=LEEWAY_S, options={"require": ["iss", "aud", "exp"]},
            )  # fmt: skip
        except jwt.PyJWTError as error:
            raise of_jwt(error, token) from None
        name, groups = claims.get(settings.principal), claims.get(settings.groups, []) if settings.groups else []
        if not _is_name(name):
            raise refusal("malformed", f"This token has no claim {settings.principal!r} with a name in it.")
        if not isinstance(groups, list) or not all(map(_is_name, groups)):
            raise refusal("malformed", f"The claim {settings.groups!r} of this token is not a list of names.")
        return Caller(
            f"{settings.name}/{name}",
            settings.kind,
            TIERS[settings.kind],
            Proof.ISSUER,
            groups=frozenset(f"{settings.name}/{each}" for each in groups),
            token=f"{settings.name}/{claims['jti']}" if _is_name(claims.get("jti")) else "",
            expires_ms=int(claims["exp"]) * 1000,
        )

    def _key(self, key_id: object) -> tuple[Any, tuple[str, ...]] | None:
        if time.monotonic() - self._fetched_s > self._times.kept_s:
            return None
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id) if isinstance(key_id, str) else None

    def _unknown(self) -> TurnwrightError:
        """The error for a key that is not known; the keys are fetched if that was not just done."""
        is_fetching = self._fetching is not None and not self._fetching.done()
        if not is_fetching and time.monotonic() - self._tried_s > self._times.unknown_every_s:
            self._fetching = asyncio.get_running_loop().create_task(self.fetch(), name=f"issuer {self.settings.name}")
            is_fetching = True
        if self._problem or is_fetching:
            why = "the last attempt to fetch them has failed" if self._problem else "they are being fetched"
            return fault(
                Reason.SERVICE_UNAVAILABLE,
                f"The keys of the issuer {self.settings.name} are not known ({why}): retry in a moment.",
                service=self.settings.name,
                address=self.settings.url,
            )
        return refusal("unknown_key", f"The issuer {self.settings.name} publishes no key with the id of this token.")

    async def stop(self) -> None:
        if self._fetching:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)


class Issuers:
    """The configured issuers, by the claim `iss` of their tokens."""

    def __init__(self, settings: Iterable[IssuerSettings], times: FetchTimes | None = None) -> None:
        self._issuers = {one.url: Issuer(one, times or FetchTimes()) for one in settings}
        self._tasks: list[asyncio.Task[None]] = []

    def find(self, token: str) -> Issuer | None:
        """The issuer that a token names, which nobody has proven."""
        import jwt  # noqa: PLC0415 - as above

        try:
            url = jwt.decode(token, options={"verify_signature": False}).get("iss")
        except (jwt.PyJWTError, RecursionError):
            raise of_jwt(jwt.DecodeError(), token) from None
        return self._issuers.get(url) if isinstance(url, str) else None

    async def start(self) -> None:
        """Fetch the keys, as far as their issuers answer, and go on doing so."""
        await asyncio.gather(*(one.fetch() for one in self._issuers.values()))
        self._tasks = [
            asyncio.create_task(one.follow(), name=f"issuer {one.settings.name}") for one in self._issuers.values()
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(one.stop() for one in self._issuers.values()))


async def _published(client: httpx.AsyncClient, settings: IssuerSettings) -> list[Any]:
    """The keys of an issuer. Raises ValueError, HTTPError."""
    url: Any = settings.jwks
    if not url:
        found = await _get(client, f"{settings.url.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != settings.url:
            raise ValueError("its configuration names another issuer")
        url = found.get("jwks_uri")
        if not isinstance(url, str):
            raise ValueError("its configuration has no `jwks_uri`")
    keys = (await _get(client, url)).get("keys")
    if not isinstance(keys, list) or len(keys) > KEYS_MAX:
        raise ValueError(f"it publishes no list of at most {KEYS_MAX} keys")
    return keys


async def _get(client: httpx.AsyncClient, url: str) -> Mapping[str, Any]:
    async with client.stream("GET", url, headers={"accept": "application/json"}) as answer:
        if answer.status_code != httpx.codes.OK:
            raise ValueError(f"{url} answers {answer.status_code}")
        body = bytearray()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > BYTES_MAX:
                raise ValueError(f"{url} answers more than {BYTES_MAX} bytes")
    found = json.loads(bytes(body))
    if not isinstance(found, dict):
        raise ValueError(  # noqa: TRY004 - of what was sent
            f"{url} answers no JSON object"
        )
    return found


def _read_keys(published: list[Any]) -> dict[str, tuple[Any, tuple[str, ...]]]:
    """The keys that can verify tokens, with their algorithms; others, such as those that encrypt, are left out."""
    import jwt  # noqa: PLC0415 - as above

    keys: dict[str, tuple[Any, tuple[str, ...]]] = {}
    for one in published:
        if not isinstance(one, dict) or one.get("use", "sig") != "sig":
            continue
        algorithms = _ALGORITHMS.get(str(one.get("crv") if one.get("kty") == "EC" else one.get("kty")), ())
        if one.get("alg"):
            algorithms = tuple(name for name in algorithms if name == one["alg"])
        if not algorithms:
            continue
        try:
            key = jwt.PyJWK.from_dict({**one, "alg": algorithms[0]}).key
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        if one["kty"] != "RSA" or key.key_size >= RSA_BITS_MIN:
            keys[str(one.get("kid", ""))] = key, algorithms
    return keys


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= NAME_CHARS_MAX and value.isprintable()
