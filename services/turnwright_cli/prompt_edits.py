"""`--prompt-edits`: a file with a JSON list of edits of the prompt, each an object with one of the five verbs.

    [{"append_to": {"target": "last-user", "parts": [{"text": "Be brief."}]}},
     {"insert_after": {"message_id": "prompt://1", "message": {"role": "assistant", "parts": [{"text": "Yes."}]}}}]

Nothing else is accepted: a message of an edit has no id, no time and no settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from turnwright_core.errors import TurnwrightError, message_of

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


class _PartsJson(Struct, kw_only=True, forbid_unknown_fields=True):
    parts: list[_PartJson]

    def content(self) -> list[Part]:
        return [part.part() for part in self.parts]


class _MessageJson(_PartsJson, forbid_unknown_fields=True):
    role: Literal["user", "assistant"]


class _AppendToJson(_PartsJson, forbid_unknown_fields=True):
    target: Literal["last-user", "last-assistant"]


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
        make = _VERBS[verb]
        if isinstance(one, _InsertJson):
            return make(one.message_id, one.message.role, one.message.content())
        return make(one.target if isinstance(one, _AppendToJson) else one.role, one.content())


_VERBS: Final[Mapping[Verb, Callable[..., PromptEdit]]] = {
    Verb.APPEND: append,
    Verb.PREPEND: prepend,
    Verb.APPEND_TO: append_to,
    Verb.INSERT_AFTER: insert_after,
    Verb.INSERT_BEFORE: insert_before,
}
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
        raise usage(f"--prompt-edits {file}: {message_of(error)}") from None
    return edits


def _decoded(data: bytes) -> list[PromptEdit]:
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"it has more than {FILE_BYTES_MAX} bytes")
    edits = [one.edit() for one in _EDITS.decode(data)]
    check_edits(edits)
    return edits
