#!/opt/turnwright/bin/python
"""Ends with 0 if the service at ADDRESS (default 127.0.0.1:7440) is ready, with 1 if it is not or does not answer."""

import asyncio
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from turnwright_core.errors import TurnwrightError
from turnwright_core.rpc.transport import open_channel
from turnwright_kit.settings import Settings, SettingsError


async def check(address: str) -> str:
    """Why the service is not ready; empty if it is. TLS is used as the settings of the services say."""
    try:
        channel = open_channel(address, (), Settings().tls)
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        await channel.close()
    except grpc.aio.AioRpcError as error:
        return f"{address}: {error.code().name} {error.details()}"
    except SettingsError as error:
        return str(error)
    except TurnwrightError as error:
        return error.message
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        return f"{address}: {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}"
    return ""


# An empty text would be an error, too.
sys.exit(asyncio.run(check(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7440")) or None)
