"""What it costs a service to admit a caller: a token of ours, one of a provider, a certificate; beside the secret.

CPU is that of the process of a store, with all its threads. Bursts of the callers take turns, on one connection each.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Mapping
from pathlib import Path

import grpc
import pytest
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc

from bench.processes import process
from certificates import Authority
from oidc_provider import serving
from ports import free_ports
from services import token_for
from turnwright_core.rpc.headers import FORWARDED, call_metadata

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(600)]

SECRET = "secret of the bench"
ANN, EDGE = "spiffe://corp.example/ann", "spiffe://corp.example/edge"
BURST = 300
ROUNDS = 15
BUDGETS_US: Mapping[str, float] = {"token": 60, "issuer": 60, "certificate": 180, "proxy": 180}
"""CPU that a call may take beyond one with the secret. What a certificate says is known to the handler alone, which reads
the message after that: one more exchange with gRPC's core."""


def cpu_us(pid: int) -> float:
    """The CPU that a process has taken, in microseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text().split()[0]) for one in threads) / 1000


async def test_admission(tmp_path) -> None:
    authority = Authority(tmp_path / "ca.pem")
    own = authority.issue(tmp_path / "own")
    async with serving() as provider:
        (tmp_path / "identity.toml").write_text(
            f'[[issuer]]\nname = "corp"\nurl = "{provider.url}"\naudience = "turnwright"\n'
            f'[[peer]]\nuri = "{ANN}"\nprincipal = "ann"\n[[proxy]]\nuri = "{EDGE}"\n'
        )
        address = f"127.0.0.1:{free_ports(1)[0]}"
        env = {
            "TURNWRIGHT_HOME": str(tmp_path), "TURNWRIGHT_TOKEN": SECRET, "TURNWRIGHT_LISTEN": address,
            "TURNWRIGHT_TLS_CERT": f"{own}/cert.pem", "TURNWRIGHT_TLS_KEY": f"{own}/key.pem",
            "TURNWRIGHT_TLS_CA": str(authority.file), "TURNWRIGHT_TLS_MUTUAL": "true",
            "TURNWRIGHT_LOG_LEVEL": "error",
        }  # fmt: skip
        callers = {
            "secret": (ANN, call_metadata(SECRET)),
            "token": (ANN, call_metadata(token_for("ann", audience="store", secret=SECRET))),
            "issuer": (ANN, call_metadata(provider.token())),
            "certificate": (ANN, ()),
            "proxy": (EDGE, ((FORWARDED, f"By={EDGE};Hash=0a1b;URI={ANN}"),)),
        }

        def presenting(name: str, uri: str) -> grpc.ChannelCredentials:
            folder = authority.issue(tmp_path / name, uri)
            files = (authority.file, folder / "key.pem", folder / "cert.pem")
            return grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))

        store = process("-m", "turnwright_store", address=address, credentials=presenting("looks", ANN), **env)
        async with store as pid, contextlib.AsyncExitStack() as closing:
            stubs = {}
            for name, (uri, _) in callers.items():
                options = (("grpc.use_local_subchannel_pool", 1),)
                opened = grpc.aio.secure_channel(address, presenting(name, uri), options=options)
                stubs[name] = model_service_pb2_grpc.ModelServiceStub(await closing.enter_async_context(opened))
            taken: dict[str, list[float]] = {name: [] for name in callers}
            for _ in range(ROUNDS + 1):
                for name, (_, metadata) in callers.items():
                    begin_us = cpu_us(pid)
                    for _ in range(BURST):
                        await stubs[name].ListModels(model_service_pb2.ListModelsRequest(), metadata=metadata)
                    taken[name].append((cpu_us(pid) - begin_us) / BURST)
    # The first round verifies who calls, and makes the connections.
    secret = taken["secret"][1:]
    print(f"\nsecret: {statistics.median(secret):.0f} us of CPU a call, on {os.cpu_count()} CPUs")
    more_us = {
        name: statistics.median(one - base for one, base in zip(taken[name][1:], secret, strict=True))
        for name in BUDGETS_US
    }
    for name, each in more_us.items():
        ratio = 1 + each / statistics.median(secret)
        print(f"{name}: {each:+.0f} us a call of at most {BUDGETS_US[name]}, {ratio:.2f} of one with the secret")
    assert min(secret) > 0
