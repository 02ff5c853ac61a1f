"""Writes the contract for the JSON transcoder of Envoy: `python deploy/envoy/descriptor.py > turnwright.binpb`.

It needs the installed package. The details of errors are part of it, so that JSON clients read the reason of an error.
"""

import sys
from typing import Any

from google.protobuf import descriptor_pb2
from google.rpc import error_details_pb2, status_pb2
from turnwright.executor.v1 import executor_service_pb2

from turnwright_executor.rpc.mounting import MOUNTED

_ERRORS = (error_details_pb2.DESCRIPTOR, status_pb2.DESCRIPTOR)


def contract() -> bytes:
    """A serialized FileDescriptorSet of the executor's rpcs and all that they import, dependencies first."""
    found: dict[str, descriptor_pb2.FileDescriptorProto] = {}

    def add(file: Any) -> None:
        for needed in file.dependencies:
            add(needed)
        if file.name not in found:
            file.CopyToProto(found.setdefault(file.name, descriptor_pb2.FileDescriptorProto()))

    for file in (executor_service_pb2.DESCRIPTOR, *(service.file for service in MOUNTED), *_ERRORS):
        add(file)
    return descriptor_pb2.FileDescriptorSet(file=found.values()).SerializeToString()


if __name__ == "__main__":
    sys.stdout.buffer.write(contract())
