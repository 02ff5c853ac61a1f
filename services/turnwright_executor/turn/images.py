"""The images of a loop: read once when it begins, stored as entries, and sent with its prompt in every turn.

A file may change while its loop runs, and every turn must send the same images (C44): from the first turn on the
entries `image://loop_N/n` count, which only the runtime writes.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Loop, State, Tier

from turnwright_core.chat.message import Image, Part, image_type
from turnwright_core.chat.prompt_edits import PromptEdit, image_paths_in
from turnwright_core.chat.timeline import IMAGES
from turnwright_core.checks import invalid, over_limit
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import IMAGE_BYTES_MAX, IMAGES_BYTES_MAX
from turnwright_core.text import scheme_of
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.packets import AssembledMessage
from turnwright_executor.tools.ports import OutsideProjectError, TooMuchError, Workspace

FIELD: Final = f"settings.{IMAGES}"

_MAY_BE_OF_IMAGE: Final = frozenset({"400", "415", "422"})
"""Statuses of a refusal that may be about an image even if its words name none."""

_DATA_URL: Final = re.compile(r"data:[a-z]+/[a-z0-9.+-]+;base64,([A-Za-z0-9+/=\s]*)")


def image_paths(loop: Loop) -> list[str]:
    """The entries of a loop's images."""
    return [f"image://loop_{loop.sequence}/{number}" for number in range(1, len(loop.settings.images) + 1)]


def kept_images(loop: Loop) -> list[tuple[str, str]]:
    """The images that a loop names, each with the entry that keeps it: those of its prompt, then those of its edits."""
    named = [*loop.settings.images, *image_paths_in(loop.settings.edits)]
    return [(path, f"image://loop_{loop.sequence}/{number}") for number, path in enumerate(named, 1)]


def edits_of(loop: Loop) -> tuple[PromptEdit, ...]:
    """The edits of a loop, with the images that were kept when it began."""
    entries = iter([entry for _, entry in kept_images(loop)[len(loop.settings.images) :]])

    def kept(part: Part) -> Part:
        return replace(part, path=next(entries)) if isinstance(part, Image) and part.path else part

    return tuple(replace(edit, parts=tuple(map(kept, edit.parts))) for edit in loop.settings.edits)


async def image_writes(ledger: Ledger, address: RunAddress, loop: Loop, workspace: Workspace) -> list[EntryWrite]:
    """The writes that keep the images of a loop. Raises INVALID_FIELD, ENTRY_NOT_FOUND, LIMIT_EXCEEDED."""
    writes = []
    total = 0
    for path, entry in kept_images(loop):
        data = await _read(ledger, address, path, workspace)
        total += len(data)
        if total > IMAGES_BYTES_MAX:
            raise over_limit(FIELD, IMAGES_BYTES_MAX, total, "bytes")
        mime = image_type(data)
        if not mime:
            raise invalid(FIELD, f"{path} is not an image that models accept: use PNG, JPEG, GIF or WebP.")
        attributes = to_attributes_json({"path": path, "mime": mime, "bytes": len(data)})
        change = SetEntry(base64.b64encode(data).decode(), attributes, state=State.RESOLVED)
        writes.append(EntryWrite(entry, change, Tier.SYSTEM))
    return writes


async def read_images(
    ledger: Ledger, address: RunAddress, loop: Loop, messages: Sequence[AssembledMessage]
) -> Sequence[Image]:
    """The images that a packet shows the model, each with its path: those of the loop, and those of conversations.

    A transcript has those of the loop in its conversation. Raises ENTRY_NOT_FOUND.
    """
    own = image_paths(loop) if loop.settings.images and any(message.role == "user" for message in messages) else []
    parts = (part for packet in messages for message in packet.conversation for part in message.parts)
    named = [part.path for part in parts if isinstance(part, Image) and part.path]
    images = []
    for path in dict.fromkeys((*own, *named)):
        found = await ledger.get_entries(address, [path])
        if not found:
            raise _missing(path)
        images.append(Image(str(found[0].attributes["mime"]), base64.b64decode(found[0].body), path=path))
    return images


def with_images_named(error: TurnwrightError, loop: Loop) -> TurnwrightError:
    """The error, with the images of its loop if its vendor may have refused one: they are never left out."""
    names = ", ".join(path for path, _ in kept_images(loop))
    is_of_image = error.metadata.get("http_status") in _MAY_BE_OF_IMAGE or "image" in error.message.lower()
    if not names or error.reason is not Reason.VENDOR_REJECTED or not is_of_image:
        return error
    message = (
        f"{error.message.rstrip('.')}. The task brings {names}: if that is what was refused, send the task again "
        "without it, smaller or as PNG or JPEG, or to a model that sees images."
    )
    return fault(error.reason, message, **error.metadata)


async def _read(ledger: Ledger, address: RunAddress, path: str, workspace: Workspace) -> bytes:
    data = await _of_entry(ledger, address, path) if scheme_of(path) else await _of_file(workspace, path)
    if len(data) > IMAGE_BYTES_MAX:
        raise _too_long(path, len(data))
    return data


async def _of_entry(ledger: Ledger, address: RunAddress, path: str) -> bytes:
    found = await ledger.get_entries(address, [path])
    if not found:
        raise _missing(path)
    if scheme_of(path) == "image":
        return base64.b64decode(found[0].body)
    matched = _DATA_URL.fullmatch(found[0].body.strip())
    try:
        return base64.b64decode(matched[1] if matched else "!", validate=not matched)
    except (binascii.Error, ValueError):
        raise invalid(
            FIELD, f"{path} is not an image: its body must be data:image/png;base64,... or the like."
        ) from None


async def _of_file(workspace: Workspace, path: str) -> bytes:
    try:
        found = await workspace.gather(path, 1, IMAGE_BYTES_MAX)
    except OutsideProjectError as error:
        raise invalid(FIELD, str(error)) from None
    except TooMuchError:
        raise _too_long(path, IMAGE_BYTES_MAX + 1) from None
    except OSError as error:
        raise invalid(FIELD, f"{path} cannot be read: {error.strerror}.") from None
    if found is None or found.is_folder:
        raise _missing(path)
    return next(iter(found.files.values()))


def _missing(path: str) -> TurnwrightError:
    return fault(
        Reason.ENTRY_NOT_FOUND, f"There is no image at {path}: name a file of the project, or an entry.", path=path
    )


def _too_long(path: str, size: int) -> TurnwrightError:
    return over_limit(f"{FIELD}: {path}", IMAGE_BYTES_MAX, size, "bytes")
