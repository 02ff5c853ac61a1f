"""A local OpenID provider: a real HTTP server with discovery and keys, and the tokens that it issues."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
SHORT = rsa.generate_private_key(65537, 1024)


def published(key, kid: str, **more: str) -> dict:
    algorithm = ECAlgorithm if key is EC else RSAAlgorithm
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", **more}


class Provider:
    """A local issuer: what it publishes can be changed while it runs."""

    def __init__(self) -> None:
        self.url = ""
        self.keys = [published(RSA, "r1"), published(EC, "e1"), published(SHORT, "short")]
        self.body: bytes | None = None
        self.status = 200
        self.hangs = False
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readline()).split()[1].decode()
        self.asked.append(path)
        if self.hangs:
            await reader.read()
        elif path.endswith("/.well-known/openid-configuration"):
            self._answer(writer, {"issuer": self.url, "jwks_uri": f"{self.url}/keys"})
        else:
            self._answer(writer, {"keys": self.keys})
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    def _answer(self, writer: asyncio.StreamWriter, found: object) -> None:
        body = json.dumps(found).encode() if self.body is None else self.body
        head = f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)

    def token(self, key=RSA, kid: object = "r1", algorithm: str = "RS256", **claims: object) -> str:
        now_s = int(time.time())
        whole = {"iss": self.url, "aud": "turnwright", "sub": "7", "iat": now_s, "nbf": now_s, "exp": now_s + 600}
        whole |= {"email": "ann@corp.example", "groups": ["devs"], **claims}
        body = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(body, key, algorithm=algorithm, headers={"kid": kid} if kid else {})


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Provider]:
    """A provider at a port of this host."""
    made = Provider()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
