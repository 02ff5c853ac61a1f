"""Effects in the records of commands."""

from __future__ import annotations

import json

from turnwright.types.v1 import command_record_pb2 as pb

from turnwright_executor.domain.effects import (
    CallEffect,
    CommandEffect,
    Effect,
    FileEdit,
    FileEffect,
    QuestionEffect,
)


def effect_to_pb(effect: Effect) -> pb.Effect:
    match effect:
        case FileEffect():
            return pb.Effect(files=pb.FileEffect(edits=map(_edit_to_pb, effect.edits)))
        case CommandEffect():
            command = pb.CommandEffect(
                command=effect.command,
                timeout_s=effect.timeout_s,
                read_only=effect.read_only,
                producer=effect.producer,
            )
            return pb.Effect(command=command)
        case QuestionEffect():
            question = pb.QuestionEffect(question=effect.question, options=effect.options, answer=effect.answer)
            return pb.Effect(question=question)
        case CallEffect():
            data_json = json.dumps(dict(effect.data), ensure_ascii=False, separators=(",", ":"))
            return pb.Effect(call=pb.CallEffect(data_json=data_json))


def _edit_to_pb(edit: FileEdit) -> pb.FileEdit:
    return pb.FileEdit(
        path=edit.path,
        base_hash=edit.base_hash,
        content=edit.content,
        patch=edit.patch,
        amended=edit.amended,
        like=edit.like,
    )


def effect_from_pb(effect: pb.Effect) -> Effect | None:
    """The effect in a record; None for one that this version does not know: its command is prepared again."""
    match effect.WhichOneof("kind"):
        case "files":
            return FileEffect(tuple(map(_edit_from_pb, effect.files.edits)))
        case "command":
            command = effect.command
            return CommandEffect(command.command, command.timeout_s, command.read_only, command.producer)
        case "question":
            question = effect.question
            return QuestionEffect(question.question, tuple(question.options), question.answer)
        case "call":
            return CallEffect(json.loads(effect.call.data_json))
        case _:
            return None


def _edit_from_pb(edit: pb.FileEdit) -> FileEdit:
    return FileEdit(
        edit.path,
        edit.base_hash if edit.HasField("base_hash") else None,
        edit.content if edit.HasField("content") else None,
        edit.patch,
        edit.amended,
        edit.like,
    )


def effect_bytes(effect: Effect) -> int:
    return effect_to_pb(effect).ByteSize()
