"""An executor on a host that does not have the deployment's secret: keys verify its clients, tokens are what it sends."""

from __future__ import annotations

import pytest
from turnwright.types.v1 import settings_pb2

from services import SECRET, running, token_for
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build as build_executor
from turnwright_kit.identity.caller import Kind
from turnwright_kit.identity.own_tokens import TokenKey
from turnwright_kit.server import RunningServer

pytestmark = pytest.mark.asyncio

OWN = "secret-of-another-home"


async def test_it_verifies_by_keys_and_calls_with_tokens(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services:
        at = f"unix:{tmp_path}/second.sock"
        others = ("store", "provider", "assembler")
        tokens = {name: token_for("executor", Kind.SERVICE, audience=name) for name in (*others, "executor")}
        settings = ExecutorSettings(
            home=tmp_path / "other", token=OWN, log_level="error", listen=at, recover=False, sh_sandbox="limits",
            keys=TokenKey.of(SECRET, "executor").text,
            peer_tokens=",".join(f"{name}={token}" for name, token in tokens.items()),
            **{name: services.addresses[name] for name in others},
        )  # fmt: skip
        server = RunningServer(build_executor(settings, OWN), at, OWN, 1.0)
        await server.start()
        try:
            async with Client.connect(at, token_for("ann")) as ann:
                made = await ann.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
                assert made.run == "r"
                assert [run.run async for run in ann.list_runs(services.project)] == ["r"]
            for token, reason in ((SECRET, Reason.UNAUTHENTICATED), (OWN, Reason.RIGHT_MISSING)):
                async with Client.connect(at, token) as stranger:
                    with pytest.raises(TurnwrightError) as told:
                        await stranger.create_run(services.project, "other", settings_pb2.RunSettings(model="m"))
                assert told.value.reason is reason
        finally:
            await server.stop()
