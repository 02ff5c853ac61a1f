#!/usr/bin/env python3
"""A plugin of protoc: the methods that executors serve by HTTP, as one OpenAPI document with the comments of the protos.

`make gen` runs it. Messages have their JSON form; what the Connect protocol adds is the same for each method.
Source: docs/adr/0073.
"""

import json
import sys

from google.protobuf.compiler.plugin_pb2 import CodeGeneratorRequest, CodeGeneratorResponse
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, MethodOptions

NOT_SERVED = tuple(f"turnwright.{name}.v1" for name in ("store", "assembler", "provider", "schemes", "tool"))
"""Packages whose services executors do not serve."""

TYPES = FieldDescriptorProto
SCALARS = {
    TYPES.TYPE_STRING: {"type": "string"},
    TYPES.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    TYPES.TYPE_BOOL: {"type": "boolean"},
    TYPES.TYPE_DOUBLE: {"type": "number", "format": "double"},
    TYPES.TYPE_FLOAT: {"type": "number", "format": "float"},
    TYPES.TYPE_INT32: {"type": "integer", "format": "int32"},
    TYPES.TYPE_UINT32: {"type": "integer", "format": "int64", "minimum": 0},
    # JSON's numbers would lose the last digits.
    TYPES.TYPE_INT64: {"type": "string", "format": "int64"},
    TYPES.TYPE_UINT64: {"type": "string", "format": "uint64"},
}
KNOWN = {
    ".google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    ".google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$"},
    ".google.protobuf.Struct": {"type": "object"},
    ".google.protobuf.Value": {},
    ".google.protobuf.Empty": {"type": "object"},
    ".google.protobuf.FieldMask": {"type": "string"},
}
CODES = """
    canceled unknown invalid_argument deadline_exceeded not_found already_exists permission_denied resource_exhausted
    failed_precondition aborted out_of_range unimplemented internal unavailable data_loss unauthenticated
""".split()

ERROR = {
    "type": "object",
    "description": "An error of the Connect protocol. `details[].debug.reason` is a name of "
    "`turnwright.types.v1.ErrorReason`.",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "enum": CODES},
        "message": {"type": "string", "description": "What is wrong, and what to do about it."},
        "details": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "const": "google.rpc.ErrorInfo"},
                    "value": {"type": "string", "description": "The message, in base64."},
                    "debug": {
                        "type": "object",
                        "properties": {
                            "reason": {"type": "string"},
                            "domain": {"type": "string"},
                            "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
                        },
                    },
                },
            },
        },
    },
}

INTRODUCTION = """\
The contract of Turnwright as HTTP: each method is a POST of its request in JSON (or binary, `application/proto`) to its path. \
Methods that only read can be called by GET, with the request in the query. A stream is sent as server-sent events if `accept` \
asks for `text/event-stream`; clients of the Connect protocol and of gRPC-Web get it in their own framing. The header \
`connect-timeout-ms` is a deadline, in milliseconds.\
"""


class Document:
    """The document, as it grows."""

    def __init__(self, files: list[FileDescriptorProto]) -> None:
        self.files = files
        self.comments: dict[tuple[str, tuple[int, ...]], str] = {}
        self.kinds: dict[str, tuple[FileDescriptorProto, tuple[int, ...], object]] = {}
        self.schemas: dict[str, object] = {"connect.error": ERROR}
        for file in files:
            for location in file.source_code_info.location:
                self.comments[file.name, tuple(location.path)] = " ".join(location.leading_comments.split())
            self.add(file, f".{file.package}", (), file.message_type, file.enum_type, 4, 5)

    def add(self, file, scope, path, messages, enums, message_number, enum_number) -> None:
        """Remember messages and enums by name, with where their comments are."""
        for index, message in enumerate(messages):
            place, name = (*path, message_number, index), f"{scope}.{message.name}"
            self.kinds[name] = (file, place, message)
            self.add(file, name, place, message.nested_type, message.enum_type, 3, 4)
        for index, enum in enumerate(enums):
            self.kinds[f"{scope}.{enum.name}"] = (file, (*path, enum_number, index), enum)

    def said(self, file: FileDescriptorProto, *path: int) -> str:
        return self.comments.get((file.name, path), "")

    def ref(self, name: str) -> dict[str, object]:
        """The schema of a message or an enum, which the document then has."""
        if name in KNOWN:
            return dict(KNOWN[name])
        key = name.lstrip(".")
        if key not in self.schemas:
            self.schemas[key] = {}
            file, path, kind = self.kinds[name]
            self.schemas[key] = (self.message if isinstance(kind, DescriptorProto) else self.enum)(file, path, kind)
        return {"$ref": f"#/components/schemas/{key}"}

    def enum(self, file, path, kind) -> dict[str, object]:
        lines = [f"- `{value.name}`: {self.said(file, *path, 2, index)}" for index, value in enumerate(kind.value)]
        text = "\n".join([self.said(file, *path), "", *lines])
        return {"type": "string", "enum": [value.name for value in kind.value], "description": text}

    def message(self, file, path, kind) -> dict[str, object]:
        properties = {}
        for index, field in enumerate(kind.field):
            text = self.said(file, *path, 2, index)
            if field.HasField("oneof_index") and not field.proto3_optional:
                others = [f"`{one.json_name}`" for one in kind.field if one.HasField("oneof_index")
                          and one.oneof_index == field.oneof_index and one is not field]  # fmt: skip
                text += f" Not together with {', '.join(others)}." if others else ""
            properties[field.json_name] = {**self.field(field), "description": text}
        found = {"type": "object", "description": self.said(file, *path), "properties": properties}
        return {**found, "additionalProperties": False}

    def field(self, field) -> dict[str, object]:
        if field.type not in (TYPES.TYPE_MESSAGE, TYPES.TYPE_ENUM):
            one = SCALARS[field.type]
        else:
            kind = self.kinds[field.type_name][2] if field.type_name in self.kinds else None
            if isinstance(kind, DescriptorProto) and kind.options.map_entry:
                return {"type": "object", "additionalProperties": self.field(kind.field[1])}
            one = self.ref(field.type_name)
        return {"type": "array", "items": one} if field.label == TYPES.LABEL_REPEATED else dict(one)

    def operations(self, file, index, service) -> dict[str, dict[str, object]]:
        found = {}
        for number, method in enumerate(service.method):
            text = self.said(file, 6, index, 2, number)
            called = {
                "tags": [service.name],
                "summary": text.partition(". ")[0].rstrip(".") + ".",
                "description": text,
                "responses": {
                    "200": {"description": "", "content": self.answer(method)},
                    "default": {
                        "description": "Why the call failed.",
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/connect.error"}}},
                    },
                },
            }
            name, request = f"{service.name}.{method.name}", self.ref(method.input_type)
            kind = "application/connect+json" if method.client_streaming else "application/json"
            body = {"required": True, "content": {kind: {"schema": request}}}
            operations = {"post": {"operationId": name, **called, "requestBody": body}}
            if method.options.idempotency_level == MethodOptions.NO_SIDE_EFFECTS:
                operations["get"] = {"operationId": f"{name}.get", **called, "parameters": self.query(request, method)}
            found[f"/{file.package}.{service.name}/{method.name}"] = operations
        return found

    def answer(self, method) -> dict[str, object]:
        kind = "text/event-stream" if method.server_streaming else "application/json"
        return {kind: {"schema": self.ref(method.output_type)}}

    @staticmethod
    def query(request, method) -> list[dict[str, object]]:
        found = [{"name": "message", "in": "query", "required": True, "content": {"application/json": {"schema": request}}}]
        if not method.server_streaming:
            found.append({"name": "encoding", "in": "query", "required": True, "schema": {"const": "json"}})
        return found

    def whole(self) -> dict[str, object]:
        paths, tags = {}, []
        for file in self.files:
            if not file.package.startswith("turnwright.") or file.package in NOT_SERVED:
                continue
            for index, service in enumerate(file.service):
                tags.append({"name": service.name, "description": self.said(file, 6, index)})
                paths |= self.operations(file, index, service)
        return {
            "openapi": "3.1.0",
            "info": {"title": "Turnwright", "version": "v1", "description": INTRODUCTION},
            "security": [{"bearer": []}],
            "tags": tags,
            "paths": dict(sorted(paths.items())),
            "components": {
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
                "schemas": dict(sorted(self.schemas.items())),
            },
        }


def main() -> None:
    request = CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    answer = CodeGeneratorResponse(supported_features=CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL)
    text = json.dumps(Document(list(request.proto_file)).whole(), indent=1, ensure_ascii=False)
    answer.file.add(name="turnwright/openapi.json", content=f"{text}\n")
    sys.stdout.buffer.write(answer.SerializeToString())


if __name__ == "__main__":
    main()
