"""The parameters of the methods that an editor calls, as the agent reads them.

Unknown fields, and `_meta` at any level, change nothing (AG04).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from turnwright_acp.jsonrpc import INVALID_PARAMS, RpcError
from turnwright_core.converters import converter

T = TypeVar("T")
SessionUpdate = dict[str, Any]
"""An update of a session, as it is written."""
SessionId = Annotated[str, Meta(min_length=1, max_length=512)]


class Initialize(Struct, rename="camel"):
    """`initialize`: the version that the client speaks, and what it can do."""

    protocol_version: Annotated[int, Meta(ge=0, le=65_535)]
    client_capabilities: Any = None


class Authenticate(Struct, rename="camel"):
    """`authenticate`."""

    method_id: str


class NewSession(Struct, rename="camel"):
    """`session/new`."""

    cwd: str
    mcp_servers: list[Any]


class LoadSession(Struct, rename="camel"):
    """`session/load` and `session/resume`."""

    session_id: SessionId
    cwd: str
    mcp_servers: list[Any] = field(default_factory=list)


class ForkSession(LoadSession):
    """`session/fork`."""


class ListSessions(Struct, rename="camel"):
    """`session/list`: those of a folder, or all."""

    cwd: str | None = None
    cursor: Annotated[str, Meta(pattern="^[0-9]{1,9}$")] | None = None


class OfSession(Struct, rename="camel"):
    """Parameters of which only the session counts."""

    session_id: SessionId


class SetMode(OfSession):
    """`session/set_mode`."""

    mode_id: str


class SetConfigOption(OfSession):
    """`session/set_config_option`."""

    config_id: str
    value: str


class TextBlock(Struct, tag="text"):
    """Text of a prompt."""

    text: str


class ImageBlock(Struct, tag="image", rename="camel"):
    """An image; `data` is base64."""

    data: str
    mime_type: str


class AudioBlock(Struct, tag="audio"):
    """Sound, which is not taken."""


class LinkBlock(Struct, tag="resource_link"):
    """A file that the prompt names."""

    uri: str
    name: str


class ResourceContents(Struct, rename="camel"):
    """The content of a file, as text or base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class ResourceBlock(Struct, tag="resource"):
    """A file that the prompt brings along."""

    resource: ResourceContents


ContentBlock = TextBlock | ImageBlock | AudioBlock | LinkBlock | ResourceBlock


class Prompt(OfSession):
    """`session/prompt`."""

    prompt: list[ContentBlock]


class Capabilities(Struct, frozen=True):
    """What a client can do, read from its raw object: what is malformed counts as absent (AP01)."""

    has_plans: bool = False
    reads_files: bool = False
    writes_files: bool = False
    has_terminals: bool = False


_SHAPES: Final = (
    Initialize,
    Authenticate,
    NewSession,
    LoadSession,
    ForkSession,
    ListSessions,
    OfSession,
    SetMode,
    SetConfigOption,
    Prompt,
)
_CONVERTERS: Final[Mapping[Any, Callable[[object], Any]]] = {shape: converter(shape) for shape in _SHAPES}


def params_of(shape: type[T], params: dict[str, Any]) -> T:
    """Raises RpcError for parameters that are missing or of another type."""
    try:
        found: T = _CONVERTERS[shape](params)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"Invalid parameters: {error}") from None
    return found


def capabilities_of(raw: Any) -> Capabilities:
    given = raw if isinstance(raw, dict) else {}
    fs = given.get("fs")
    files = fs if isinstance(fs, dict) else {}
    return Capabilities(
        has_plans=isinstance(given.get("plan"), dict),
        reads_files=files.get("readTextFile") is True,
        writes_files=files.get("writeTextFile") is True,
        has_terminals=given.get("terminal") is True,
    )
