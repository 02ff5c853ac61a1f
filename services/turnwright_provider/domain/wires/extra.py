"""Fields of a vendor's own request that have no name in ours: merged into the body last."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from turnwright_core.json_text import JsonMapping, JsonObject


def encode_body(body: JsonMapping, extra: JsonMapping) -> bytes:
    """The request body as bytes, with the extra fields."""
    return encode(with_extra(body, extra))


def encode(value: object) -> bytes:
    """JSON; a `msgspec.Raw` in it stands for what it encodes."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # msgspec refuses an unpaired surrogate; a question mark replaces it.
        return json.dumps(value, ensure_ascii=False, default=msgspec.json.decode).encode("utf-8", "replace")


def with_extra(body: JsonMapping, extra: JsonMapping) -> JsonObject:
    """The body with extra fields: objects are merged, lists are appended to, anything else is replaced."""
    return {**body, **{name: _merged(body.get(name), value) for name, value in extra.items()}}


def _merged(ours: object, theirs: object) -> object:
    if isinstance(ours, msgspec.Raw):
        ours = msgspec.json.decode(ours)
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return with_extra(ours, theirs)
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        return [*ours, *theirs]
    return theirs
