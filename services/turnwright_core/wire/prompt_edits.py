"""Prompt edits on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from turnwright.types.v1 import message_pb2, prompt_edit_pb2

from turnwright_core.chat.message import Part, Role
from turnwright_core.chat.prompt_edits import PromptEdit, Verb
from turnwright_core.checks import invalid
from turnwright_core.wire.codec import FieldCodec
from turnwright_core.wire.messages import part_from_pb, part_to_pb, role_from_pb, role_to_pb

_TARGETS: Final = {
    prompt_edit_pb2.PROMPT_TARGET_LAST_USER: Role.USER,
    prompt_edit_pb2.PROMPT_TARGET_LAST_ASSISTANT: Role.ASSISTANT,
}
_NUMBERS: Final = {role: number for number, role in _TARGETS.items()}


def edit_to_pb(edit: PromptEdit) -> prompt_edit_pb2.PromptEdit:
    found = prompt_edit_pb2.PromptEdit(plugin=edit.plugin)
    parts = list(map(part_to_pb, edit.parts))
    if edit.verb is Verb.APPEND_TO:
        found.append_to.CopyFrom(prompt_edit_pb2.AppendToMessage(target=_NUMBERS[edit.role], parts=parts))
        return found
    message = prompt_edit_pb2.PromptMessage(role=role_to_pb(edit.role), parts=parts)
    if edit.verb in (Verb.APPEND, Verb.PREPEND):
        getattr(found, edit.verb.value).CopyFrom(message)
    else:
        inserted = prompt_edit_pb2.InsertMessage(message_id=edit.message_id, message=message)
        getattr(found, edit.verb.value).CopyFrom(inserted)
    return found


def edits_from_pb(edits: Iterable[prompt_edit_pb2.PromptEdit]) -> tuple[PromptEdit, ...]:
    """Decode. Raises INVALID_FIELD for one that does nothing, or names no role or target that there is."""
    return tuple(_decoded(edits))


def _decoded(edits: Iterable[prompt_edit_pb2.PromptEdit]) -> Iterator[PromptEdit]:
    for index, edit in enumerate(edits):
        which = edit.WhichOneof("edit")
        if which is None:
            raise invalid(
                f"edits[{index}]", f"edits[{index}] does nothing: use {', '.join(verb.value for verb in Verb)}."
            )
        verb = Verb(which)
        if verb is Verb.APPEND_TO:
            target = edit.append_to.target
            if target not in _TARGETS:
                raise invalid(f"edits[{index}].target", "The target is the last message of the user or the assistant.")
            yield PromptEdit(verb, _TARGETS[target], _parts(edit.append_to.parts), plugin=edit.plugin)
            continue
        inserts = verb in (Verb.INSERT_AFTER, Verb.INSERT_BEFORE)
        inner = getattr(edit, which)
        message: prompt_edit_pb2.PromptMessage = inner.message if inserts else inner
        role = role_from_pb(message.role)
        if role is None:
            raise invalid(f"edits[{index}].role", "A message needs a role: user or assistant.")
        yield PromptEdit(verb, role, _parts(message.parts), inner.message_id if inserts else "", edit.plugin)


def _parts(parts: Iterable[message_pb2.Part]) -> tuple[Part, ...]:
    return tuple(map(part_from_pb, parts))


EDITS: Final[FieldCodec] = (lambda edits: map(edit_to_pb, edits), edits_from_pb)
