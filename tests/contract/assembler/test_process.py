"""The assembler as a process of its own: it serves, and it stops when it is told to."""

import asyncio
import os
import subprocess
import sys

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from contract.assembler.stack import SECRET
from turnwright_kit.health import LIVENESS, CheckResponse

NAME = "turnwright.assembler.v1.AssemblerService"


@pytest.mark.asyncio
async def test_the_process_lives_without_a_store_but_is_not_ready_and_ends_cleanly(tmp_path):
    address = f"unix:{tmp_path}/a.sock"
    environment = os.environ | {
        "TURNWRIGHT_TOKEN": SECRET,
        "TURNWRIGHT_HOME": str(tmp_path),
        "TURNWRIGHT_LISTEN": address,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "turnwright_assembler", env=environment, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            lives = await stub.Check(health_pb2.HealthCheckRequest(service=LIVENESS), timeout=60, wait_for_ready=True)
            ready = await stub.Check(health_pb2.HealthCheckRequest(service=NAME), timeout=60)
        # There is no store, so it is not to get any calls.
        assert (lives.status, ready.status) == (CheckResponse.SERVING, CheckResponse.NOT_SERVING)
        process.terminate()
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, SECRET.encode() in errors) == (0, False)


@pytest.mark.parametrize(
    ("variable", "value"), [("TURNWRIGHT_BUDGET_CEILING", "1.5"), ("TURNWRIGHT_TOKEN_DIVISOR", "0")]
)
def test_a_wrong_setting_is_named_and_ends_the_start(tmp_path, variable, value):
    environment = os.environ | {"TURNWRIGHT_TOKEN": SECRET, "TURNWRIGHT_HOME": str(tmp_path), variable: value}
    done = subprocess.run(
        [sys.executable, "-m", "turnwright_assembler"], check=False, env=environment, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr.decode().startswith(f"{variable}: ")) == (2, True)
