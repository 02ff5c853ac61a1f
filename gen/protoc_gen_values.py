#!/usr/bin/env python3
"""A plugin of protoc: frozen structs for those messages that services hand to each other as values.

`make gen` runs it. A struct has the fields of its message in their order, with these differences: a time is `*_ms`,
integer milliseconds since 1970; a duration is `*_ms`, too, but for those of DURATIONS; a repeated field is a tuple; a message that is `optional` is None if it is not set, any
other is an empty one, and so is one of a oneof. The tables below say what else differs.
Source: docs/adr/0058.
"""

import re
import sys
import textwrap

from google.protobuf.compiler.plugin_pb2 import CodeGeneratorRequest, CodeGeneratorResponse
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.unknown_fields import UnknownFieldSet

VALUES = {
    "types": """
        Cursor Usage Budget Spend ResponseFormat ToolDescription LoopSettings RunSettings RunSettingsPatch Loop ForkOrigin RunPlace AgentOrigin Agent Run
        TurnRequest LoopTally RunPath TurnResult Turn Capabilities ReportedWindow Price Model
        Entry SearchHit ViewChange MessageResult RunMessage QueuedCommand
        Project FileConstraint StreamChannel RunOverview PlanDelta PlanItem Schedule ScheduledRun Grant Token
        FileEdit WrittenFile FileEffect CommandEffect QuestionEffect ClientToolEffect AgentsEffect ClientCall
        Rule RuleSet DecidingRule
    """.split(),
    "replies": """
        ToolCall ThinkingBlock ServerBlock CallBegun CallGrown CallEnded TakenBack
    """.split(),
    "store": """
        SetEntry AppendEntry RemoveEntry CopyEntry MoveEntry EntryWrite LoopEnd NextTurn EndTurnRequest EndTurnResponse
        WriteEntriesRequest WriteEntriesResponse WatchChangesRequest WatchChangesResponse
        ClaimRunResponse Lease LeaseState RenewLeasesResponse GetLeaseResponse TitleCall
        AgentLimits StartAgentRequest StartAgentResponse WaitAgentsRequest WaitAgentsResponse
    """.split(),
    "assembler": """
        AssembleRequest UnfitPiece PacketReport AssembleResponse CheckBudgetResponse
    """.split(),
    "provider": """
        Tool Dropped GenerateRequest Retry Finish
    """.split(),
    "plans": """
        PlanWriter
    """.split(),
}
"""The messages that have values, by module: the package, but for those of PACKAGES."""

PACKAGES = {"replies": "types", "errors": "types"}
"""Modules apart from that of their package, because what is written by hand for it needs them."""

FIRST = {"ToolCall": ("name", "arguments"), "ThinkingBlock": ("type",)}
"""Fields that come before the others of their message."""

ENUMS = {
    "types": """
        Mode CallStyle Assembly RequestKind ReplyKind TokenSource SessionState CompressionStrength
        Visibility State Tier MessageKind QueuedCommandKind FileConstraintKind PlanKind PlanPriority PlanStatus StreamEnd
        DecisionKind Permission ViewFilter ScheduleOverlap RuleVerdict RuleLevel GrantRole Right Place
    """.split(),
    "store": """
        Durability
    """.split(),
    "provider": ["RetryReason"],
    "errors": ["ErrorReason"],
}

WRITTEN = {
    # The word of a level, as settings, stored JSON and vendors have it, or a number, in place of a oneof.
    "Reasoning": ("turnwright_core.models", "Reasoning"),
    # A verb with what all verbs have, in place of a oneof of three messages.
    "PromptEdit": ("turnwright_core.chat.prompt_edits", "PromptEdit"),
    # Its JSON is a line of a conversation: roles are words, and a part is a text or an image.
    "Message": ("turnwright_core.chat.message", "Message"),
    # A word, as vendors have it, or a tool, in place of a oneof.
    "ToolChoice": ("turnwright_core.models", "ToolChoice"),
    # Its items are its body, which is all that is stored.
    "Plan": ("turnwright_core.plans.plan", "Plan"),
    # Pieces are texts or runs of the base, in place of a oneof; it counts and collects them.
    "PacketRecord": ("turnwright_core.packet_values", "TurnPacket"),
    "PacketMessage": ("turnwright_core.packet_values", "PacketMessage"),
}
"""Values that differ from their messages, and are written by hand: why, module and name."""

PLAIN = {
    "AdoptFilesResponse": ("Mapping[str, str]", "collections.abc", "Mapping"),
}
"""Messages whose values are plain collections: the annotation, and what it needs from where."""

BASES = {
    "Entry": ("turnwright_core.value_methods", "EntryMethods"),
    "State": ("turnwright_core.value_methods", "SettlingState"),
    "Permission": ("turnwright_core.value_methods", "Grantable"),
    "ErrorReason": ("turnwright_core.value_methods", "NamedReason"),
}
"""What has methods: module and name of the class that has them."""

LEFT_OUT = ("Entry.status", "Project.copied_from")
"""What follows from other fields, or is said in an answer only."""

SERIALIZED = (".turnwright.types.v1.CommandRecord",)
"""Messages that values have as bytes."""

UNIONS = ("EntryWrite.change",)
"""The oneofs that are one field, with the struct that is set."""

SEQUENCES = ("ViewChange", "AssembleRequest")
"""Messages outside of the store whose repeated fields take any sequence, as those of the store do."""

DURATIONS = {
    "Budget.wall_max": "wall_s_max", "Spend.wall": "wall_s", "Retry.wait": "wait_s", "Schedule.every": "every_s", "CommandEffect.timeout": "timeout_s",
}  # fmt: skip
"""Those in seconds, by the names of values."""

SHORT_JSON = ("ToolCall", "SearchHit", "Usage", "ResponseFormat", "LoopTally", "TurnResult", "Capabilities", "TitleCall")
"""What is stored as JSON without the fields that have their defaults."""

DEFAULTS = {
    "TurnResult.status": "102", "MessageResult.kind": "ReplyKind.REPLY", "FileConstraint.kind": "FileConstraintKind.ADD",
    "PlanItem.priority": "PlanPriority.MEDIUM", "PlanItem.status": "PlanStatus.PENDING",
}  # fmt: skip
"""Defaults that are not those of messages: what JSON leaves out."""

CODE_FIELD = 50735
"""The option of a reason that says its code (types/v1/error.proto): a table of its own, CODES."""

LIBRARIES = {
    "collections.abc": ("Mapping", "Sequence"),
    "enum": ("IntEnum",),
    "typing": ("TYPE_CHECKING",),
    "msgspec": ("Struct", "field"),
}
"""What modules may import."""

TYPES = FieldDescriptorProto
SCALARS = {
    **dict.fromkeys((TYPES.TYPE_STRING,), ("str", '""')),
    **dict.fromkeys((TYPES.TYPE_BYTES,), ("bytes", 'b""')),
    **dict.fromkeys((TYPES.TYPE_BOOL,), ("bool", "False")),
    **dict.fromkeys((TYPES.TYPE_DOUBLE, TYPES.TYPE_FLOAT), ("float", "0.0")),
    **dict.fromkeys((TYPES.TYPE_INT32, TYPES.TYPE_INT64, TYPES.TYPE_UINT32, TYPES.TYPE_UINT64), ("int", "0")),
}


def short(name: str) -> str:
    return name.rpartition(".")[2]


def without_defaults(lines: list[str]) -> list[str]:
    """The fields before one that has no default."""
    return [re.sub(r"^(    \w+: .*) = .*", r"\1", line) for line in lines]


class Comments:
    """The comments of a file, by the path of what they stand at."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._texts = {
            tuple(one.path): one.leading_comments or one.trailing_comments for one in file.source_code_info.location
        }

    def docstring(self, path: tuple[int, ...], indent: str = "    ") -> list[str]:
        words = re.sub(r"\s+", " ", self._texts.get(path, "")).strip().replace("\\", "\\\\").replace('"""', "'''")
        if not words:
            return []
        text = f'"""{words}"""' if not words.endswith('"') else f'"""{words} """'
        return textwrap.wrap(text, 118, initial_indent=indent, subsequent_indent=indent, break_long_words=False)


class Module:
    """The values of one package."""

    def __init__(self, package: str, files: list[FileDescriptorProto]) -> None:
        self.package = package
        self.wanted = VALUES.get(package, [])
        self.used: dict[str, set[str]] = {}
        """Names of other modules that are used, by module."""
        self.messages: set[tuple[str, str]] = set()
        """Modules of messages that are used as they are."""
        self.found = {
            message.name: (message, Comments(file), at)
            for file in files
            for at, message in enumerate(file.message_type)
            if message.name in self.wanted
        }
        self.in_unions = {
            short(field.type_name)
            for message, _, _ in self.found.values()
            for field in message.field
            if self.union_of(message, field)
        }
        self.enums = [
            (enum, Comments(file), at)
            for file in files
            for at, enum in enumerate(file.enum_type)
            if enum.name in ENUMS.get(package, [])
        ]

    def text(self) -> str:
        body = [line for enum, comments, at in self.enums for line in self.enum(enum, comments, at)]
        body += [line for name in self.wanted for line in self.struct(*self.found[name])]
        checked = ["", "if TYPE_CHECKING:", *(f"    from {module} import {name}" for module, name in sorted(self.messages))]
        imports = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(self.used.items())]
        head = [f'"""Values of messages of turnwright.{PACKAGES.get(self.package, self.package)}.v1. Generated by `make gen`. DO NOT EDIT!"""', ""]
        said = "\n".join([*body, *(checked if self.messages else [])])
        head += ["from __future__ import annotations"]
        for module, names in LIBRARIES.items():
            if used := [name for name in names if re.search(rf"\b{name}(?=[(\[,)]| im|:$)", said, re.MULTILINE)]:
                head += [""] if module == "msgspec" or not head[-1].startswith("from ") or "__future__" in head[-1] else []
                head.append(f"from {module} import {', '.join(used)}")
        return "\n".join([*head, "", *imports, *(checked if self.messages else []), "", *body]) + "\n"

    def enum(self, enum, comments: Comments, at: int) -> list[str]:
        prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum.name).upper() + "_"
        lines = ["", f"class {enum.name}({self.base(enum.name, 'IntEnum')}):", *comments.docstring((5, at)), ""]
        for index, value in enumerate(enum.value):
            lines.append(f"    {value.name.removeprefix(prefix)} = {value.number}")
            lines += comments.docstring((5, at, 2, index))
        codes = [
            f"    {enum.name}.{value.name.removeprefix(prefix)}: {field.data.decode()!r},".replace("'", '"')
            for value in enum.value
            for field in UnknownFieldSet(value.options)
            if field.field_number == CODE_FIELD
        ]
        return [*lines, *(["", "", "CODES = {", *codes, "}"] if codes else []), ""]

    def struct(self, message: DescriptorProto, comments: Comments, at: int) -> list[str]:
        options = "frozen=True" + (", omit_defaults=True" if message.name in SHORT_JSON else "")
        options += ", tag=True" if message.name in self.in_unions else ""
        base = self.base(message.name, "Struct")
        lines = ["", f"class {message.name}({base}, {options}):", *comments.docstring((4, at)), ""]
        unions: set[str] = set()
        self.lists_are_tuples = self.package != "store" and message.name not in SEQUENCES
        first = FIRST.get(message.name, ())
        for index, field in sorted(enumerate(message.field), key=lambda one: one[1].name not in first):
            if f"{message.name}.{field.name}" in LEFT_OUT:
                continue
            if union := self.union_of(message, field):
                if union not in unions:
                    unions.add(union)
                    lines = without_defaults(lines)
                    kinds = [short(one.type_name) for one in message.field if self.union_of(message, one) == union]
                    lines.append(f"    {union}: {' | '.join(kinds)}")
                    lines += comments.docstring((4, at, 8, field.oneof_index))
                continue
            name, kind, default = self.field(field)
            if (seconds := DURATIONS.get(f"{message.name}.{field.name}")) is not None:
                name, kind, default = seconds, "float", "0.0"
            default = DEFAULTS.get(f"{message.name}.{name}", default)
            lines = lines if default else without_defaults(lines)
            lines.append(f"    {name}: {kind} = {default}" if default else f"    {name}: {kind}")
            lines += comments.docstring((4, at, 2, index))
        return [*lines, ""]

    def base(self, name: str, default: str) -> str:
        module, base = BASES.get(name, ("", default))
        if module:
            self.used.setdefault(module, set()).add(base)
        return base

    def union_of(self, message: DescriptorProto, field: FieldDescriptorProto) -> str:
        """The oneof of a field that is a union; empty if it is in none."""
        in_oneof = field.HasField("oneof_index") and not field.proto3_optional
        name = message.oneof_decl[field.oneof_index].name if in_oneof else ""
        return name if f"{message.name}.{name}" in UNIONS else ""

    def field(self, field: FieldDescriptorProto) -> tuple[str, str, str]:
        """Name, annotation and default."""
        if field.type_name == ".google.protobuf.Timestamp":
            return field.name.removesuffix("_time") + "_ms", "int", "0"
        if field.type_name == ".google.protobuf.Duration":
            return field.name.removesuffix("_duration") + "_ms", "int", "0"
        name = field.name
        if field.type in SCALARS:
            kind, default = SCALARS[field.type]
        elif field.type_name in SERIALIZED:
            kind, default = "bytes", 'b""'
        else:
            kind = self.use(field.type_name)
            default = f"{kind}.UNSPECIFIED" if field.type == TYPES.TYPE_ENUM else f"{kind}()"
            default = "" if short(field.type_name) in WRITTEN else default
        if kind.endswith("Entry") and kind.removesuffix("Entry").lower() == name:
            return name, "Mapping[str, str]", "field(default_factory=dict)"
        if field.label == TYPES.LABEL_REPEATED:
            return name, f"tuple[{kind}, ...]" if self.lists_are_tuples else f"Sequence[{kind}]", "()"
        is_message = field.type == TYPES.TYPE_MESSAGE and kind != "bytes"
        if field.proto3_optional or (is_message and field.HasField("oneof_index")):
            return name, f"{kind} | None", "None"
        return name, kind, default

    def use(self, type_name: str) -> str:
        """The annotation of a value, whose module is imported."""
        package, name = type_name.split(".")[2], short(type_name)
        if type_name.count(".") > 4:
            return name  # an entry of a map
        if name in PLAIN:
            annotation, module, name = PLAIN[name]
            if module not in LIBRARIES:
                self.messages.add((module, name))
            return annotation
        if name in WRITTEN:
            module, name = WRITTEN[name]
            self.used.setdefault(module, set()).add(name)
        elif name not in VALUES.get(package, []) + ENUMS.get(package, []):
            module = MODULES[type_name]
            self.messages.add((module.rpartition(".")[0], module.rpartition(".")[2]))
            return f"{module.rpartition('.')[2]}.{name}"
        elif package != self.package:
            self.used.setdefault(f"turnwright_values.{package}", set()).add(name)
        return name


MODULES: dict[str, str] = {}
"""The modules of messages."""


def main() -> None:
    request = CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    for file in request.proto_file:
        module = file.name.removesuffix(".proto").replace("/", ".") + "_pb2"
        MODULES.update({f".{file.package}.{message.name}": module for message in file.message_type})
    answer = CodeGeneratorResponse(supported_features=CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL)
    for package in {**VALUES, **ENUMS}:
        source = f"turnwright.{PACKAGES.get(package, package)}.v1"
        files = [file for file in request.proto_file if file.package == source]
        answer.file.add(name=f"turnwright_values/{package}.py", content=Module(package, files).text())
    answer.file.add(name="turnwright_values/__init__.py", content='"""Values of messages. Generated: `make gen`."""\n')
    answer.file.add(name="turnwright_values/py.typed")
    sys.stdout.buffer.write(answer.SerializeToString())


if __name__ == "__main__":
    main()
