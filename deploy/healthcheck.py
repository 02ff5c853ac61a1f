#!/opt/turnwright/bin/python
"""Ends with 0 if the service at ADDRESS (default 127.0.0.1:7440) is ready, with 1 if it is not or does not answer."""

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7440"
try:
    with grpc.insecure_channel(address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
except grpc.RpcError as error:
    sys.exit(f"{address}: {error.code().name}")
if answer.status != health_pb2.HealthCheckResponse.SERVING:
    sys.exit(f"{address}: {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}")
