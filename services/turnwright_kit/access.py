"""What each rpc asks of its callers, as the protos declare it (types/v1/access.proto). Source: architecture 10."""

from __future__ import annotations

from typing import Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from turnwright.types.v1 import access_pb2 as pb

_WITHOUT_GRANT: Final = (pb.RIGHT_IDENTITY, pb.RIGHT_SERVICE)
"""What nobody has by a grant, and so in no project."""


class UndeclaredAccessError(Exception):
    """An rpc does not say who may call it. The text names the rpc, and what to declare."""


def check_declared(service: str) -> None:
    """Refuse a service of the contract with an rpc that does not say who may call it. Raises UndeclaredAccessError."""
    for method in descriptor_pool.Default().FindServiceByName(service).methods:
        access_of(method)


def access_of(method: MethodDescriptor) -> pb.Access:
    """What an rpc asks of its callers. Raises UndeclaredAccessError."""
    access: pb.Access = method.GetOptions().Extensions[pb.access]
    if access.right == pb.RIGHT_UNSPECIFIED:
        raise UndeclaredAccessError(
            f"{method.full_name} does not say which right its callers need: declare it in its proto, as in "
            "`option (turnwright.types.v1.access) = {right: RIGHT_READ};`."
        )
    is_in_project = access.right not in _WITHOUT_GRANT and access.reach == pb.REACH_UNSPECIFIED
    if is_in_project and not {"project", "task"} & set(method.input_type.fields_by_name):
        raise UndeclaredAccessError(
            f"{method.full_name} needs {pb.Right.Name(access.right)} in a project, but its request names none: give "
            "the request a field `project`, or declare another reach."
        )
    return access
