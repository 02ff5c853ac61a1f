"""Effects in the records of commands."""

from __future__ import annotations

import json

from turnwright.types.v1 import command_record_pb2 as pb

from turnwright_core.wire.codec import codec
from turnwright_executor.domain.effects import (
    CallEffect,
    ClientToolEffect,
    CommandEffect,
    Effect,
    FileEdit,
    FileEffect,
    QuestionEffect,
    WrittenFile,
)

_edit_to_pb, _edit_from_pb = codec(FileEdit, pb.FileEdit)
written_to_pb, written_from_pb = codec(WrittenFile, pb.WrittenFile)
_command_to_pb, _command_from_pb = codec(CommandEffect, pb.CommandEffect)
_question_to_pb, _question_from_pb = codec(QuestionEffect, pb.QuestionEffect)

_client_tool_to_pb, _client_tool_from_pb = codec(ClientToolEffect, pb.ClientToolEffect)


def effect_to_pb(effect: Effect) -> pb.Effect:
    match effect:
        case FileEffect():
            return pb.Effect(files=pb.FileEffect(edits=map(_edit_to_pb, effect.edits)))
        case CommandEffect():
            return pb.Effect(command=_command_to_pb(effect))
        case QuestionEffect():
            return pb.Effect(question=_question_to_pb(effect))
        case CallEffect():
            data_json = json.dumps(dict(effect.data), ensure_ascii=False, separators=(",", ":"))
            return pb.Effect(call=pb.CallEffect(data_json=data_json))
        case ClientToolEffect():
            return pb.Effect(client_tool=_client_tool_to_pb(effect))


def effect_from_pb(effect: pb.Effect) -> Effect | None:
    """The effect; None if this version does not know it, so the command is prepared again."""
    match effect.WhichOneof("kind"):
        case "files":
            return FileEffect(tuple(map(_edit_from_pb, effect.files.edits)))
        case "command":
            return _command_from_pb(effect.command)
        case "question":
            return _question_from_pb(effect.question)
        case "call":
            return CallEffect(json.loads(effect.call.data_json))
        case "client_tool":
            return _client_tool_from_pb(effect.client_tool)
        case _:
            return None


def effect_bytes(effect: Effect) -> int:
    return effect_to_pb(effect).ByteSize()
