"""Each rpc of each process, called with a certificate that is good and of a SPIFFE id that no `[[peer]]` names.

It is a column of the matrix in test_access_matrix.py, of processes that know callers by certificate. ADR 65.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from certificates import Authority
from contract.test_access_matrix import ADMITTED, ANSWER_S, SERVERS, methods_of, request_for
from contract.test_certificates import IDENTITIES, NOBODY
from services import SECRET
from turnwright_assembler.config import AssemblerSettings
from turnwright_assembler.wiring import build as build_assembler
from turnwright_core.rpc.errors import from_rpc
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build as build_executor
from turnwright_kit.peer import rpc_of
from turnwright_kit.server import RunningServer
from turnwright_provider.config import ProviderSettings
from turnwright_provider.wiring import build as build_provider
from turnwright_store.config import StoreSettings
from turnwright_store.wiring import build as build_store

pytestmark = pytest.mark.asyncio


BUILDS: Final = {
    "executor": (ExecutorSettings, build_executor),
    "store": (StoreSettings, build_store),
    "assembler": (AssemblerSettings, build_assembler),
    "provider": (ProviderSettings, build_provider),
}


def with_certificates(name: str, folder: Path, authority: Authority) -> RunningServer:
    """A process that knows callers by certificate; nothing that it calls is there, and nothing is called."""
    own = authority.issue(folder / "own")
    (folder / "identity.toml").write_text(IDENTITIES)
    common = {
        "home": folder, "token": SECRET, "log_level": "error", "tls_mutual": True, "tls_ca": str(authority.file),
        "tls_cert": f"{own}/cert.pem", "tls_key": f"{own}/key.pem",
    }  # fmt: skip
    kind, build = BUILDS[name]
    return RunningServer(build(kind(**common), SECRET), "127.0.0.1:0", SECRET, 1.0)


@pytest.mark.parametrize("server", SERVERS)
async def test_a_certificate_of_another_spiffe_id_is_nobody_for_each_rpc(tmp_path, server):
    authority = Authority(tmp_path / "ca.pem")
    process = with_certificates(server, tmp_path, authority)
    await process.start()
    found = {}
    try:
        caller = authority.issue(tmp_path / "caller", NOBODY)
        key, chain = (caller / "key.pem").read_bytes(), (caller / "cert.pem").read_bytes()
        own = grpc.ssl_channel_credentials(authority.file.read_bytes(), key, chain)
        async with grpc.aio.secure_channel(process.address, own) as channel:
            for method in methods_of(server):
                found[method.full_name] = await asked(channel, method)
    finally:
        await process.stop()
    assert found == dict.fromkeys(found, "UNAUTHENTICATED certificate")
    assert len(found) == len(methods_of(server))


async def asked(channel: grpc.aio.Channel, method: Any) -> str:
    """The answer to a call that has no token."""

    async def sent() -> Any:
        yield request_for(method, "")

    call = rpc_of(channel, method)(sent() if method.client_streaming else request_for(method, ""), timeout=ANSWER_S)
    try:
        if method.server_streaming:
            async for _ in call:
                break
        else:
            await call
    except grpc.aio.AioRpcError as error:
        told = from_rpc(error, "", "")
        return f"{told.reason.name} {told.metadata.get('cause', '')}"
    return ADMITTED
