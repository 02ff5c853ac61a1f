"""`--prompt-edits`: a file with a JSON list of edits of the prompt, each an object with one of the five verbs.

    [{"append_to": {"target": "last-user", "parts": [{"text": "Be brief."}]}},
     {"insert_after": {"message_id": "prompt://1", "message": {"role": "assistant", "parts": [{"text": "Yes."}]}}}]

Nothing else is accepted: a message of an edit has no id, no time and no settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from turnwright_cli.exit_codes import usage
from turnwright_core.chat.message import Image, Part, Text
from turnwright_core.chat.prompt_edits import (
    PromptEdit,
    Verb,
    append,
    append_to,
    check_edits,
    insert_after,
    insert_before,
    prepend,
)
from turnwright_core.errors import TurnwrightError

FILE_BYTES_MAX: Final = 1024 * 1024
"""Longest file with edits, in bytes: what it escapes may be six times as long as the edits may be."""


class _ImageJson(Struct, forbid_unknown_fields=True):
    url: str = ""
    path: str = ""


class _PartJson(Struct, forbid_unknown_fields=True):
    text: str | UnsetType = UNSET
    image: _ImageJson | UnsetType = UNSET

    def part(self) -> Part:
        if isinstance(self.image, _ImageJson):
            return Image(url=self.image.url, path=self.image.path)
        return Text(self.text or "")


class _MessageJson(Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant"]
    parts: list[_PartJson]


class _AppendToJson(Struct, forbid_unknown_fields=True):
    target: Literal["last-user", "last-assistant"]
    parts: list[_PartJson]


class _InsertJson(Struct, forbid_unknown_fields=True):
    message_id: str
    message: _MessageJson


class _EditJson(Struct, forbid_unknown_fields=True):
    """The fields are the verbs."""

    append: _MessageJson | UnsetType = UNSET
    prepend: _MessageJson | UnsetType = UNSET
    append_to: _AppendToJson | UnsetType = UNSET
    insert_after: _InsertJson | UnsetType = UNSET
    insert_before: _InsertJson | UnsetType = UNSET

    def edit(self) -> PromptEdit:
        given = [(verb, one) for verb in Verb if (one := getattr(self, verb.value)) is not UNSET]
        if len(given) != 1:
            raise ValueError(f"each edit has one of {', '.join(verb.value for verb in Verb)}")
        verb, one = given[0]
        parts = [part.part() for part in (one.message if isinstance(one, _InsertJson) else one).parts]
        match verb:
            case Verb.APPEND:
                return append(one.role, parts)
            case Verb.PREPEND:
                return prepend(one.role, parts)
            case Verb.APPEND_TO:
                return append_to(one.target, parts)
            case Verb.INSERT_AFTER:
                return insert_after(one.message_id, one.message.role, parts)
            case Verb.INSERT_BEFORE:
                return insert_before(one.message_id, one.message.role, parts)


_EDITS: Final = msgspec.json.Decoder(list[_EditJson])


def prompt_edits_of(file: str | None) -> Sequence[PromptEdit]:
    """The edits in a file. Raises FailureError that says what is wrong with it."""
    if file is None:
        return ()
    try:
        with Path(file).open("rb") as opened:
            edits = _decoded(opened.read(FILE_BYTES_MAX + 1))
    except OSError as error:
        raise usage(f"--prompt-edits {file} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError, TurnwrightError) as error:
        raise usage(f"--prompt-edits {file}: {error}") from None
    return edits


def _decoded(data: bytes) -> list[PromptEdit]:
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"it has more than {FILE_BYTES_MAX} bytes")
    edits = [one.edit() for one in _EDITS.decode(data)]
    check_edits(edits)
    return edits
