"""What executors and sandbox hosts say to each other: the tools of a host, their arguments and results, as JSON.

Each call is for a place: the path of a project below what the host serves, with the rules for its files. A host keeps
nothing between two calls but what its scanners have seen, and without that it only reports more.
Source: docs/adr/0086.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.tools.ports import CommandEnd, FileText, GatheredFiles, ScannedFile

PROBLEM_STATUS: Final = 500
"""Status of a result that is a HostProblem."""

PIECE_CHARS: Final = 256 * 1024
"""Characters of files in one message of a scan; the text of a single one may be longer."""

TOOLS: Final[Mapping[str, tuple[EffectClass, str]]] = {
    "locate": (EffectClass.IDEMPOTENT, "The workspace of a directory, and how commands run there."),
    "normalise": (EffectClass.PURE, "Where a path of a project leads."),
    "find": (EffectClass.PURE, "Reads a file of a project."),
    "gather": (EffectClass.PURE, "Reads all files below a folder of a project."),
    "scan": (EffectClass.PURE, "The files of a project that have changed since the scan before."),
    "replace": (EffectClass.IDEMPOTENT, "Writes or deletes a file of a project that is as it was."),
    "run": (EffectClass.OUTSIDE, "Runs a command in a project."),
    "extend": (EffectClass.PURE, "Says how long a running command may go on."),
    "stop": (EffectClass.PURE, "Stops a running command."),
}
"""The tools of a host. A call that may be repeated is sent again if its connection breaks."""


class HostPlace(Struct, frozen=True):
    """A project on a host."""

    path: str
    """Below what the host serves; begins with a slash."""
    rules: tuple[tuple[str, int], ...] = ()
    """Pattern and kind of each constraint for its files."""


class LocateCall(Struct, frozen=True):
    """Asks for the workspace of a directory. `make`: create its marker if it is missing."""

    place: HostPlace
    make: bool = False


class LocatedPlace(Struct, frozen=True):
    """A directory, and how commands run there: as FoundWorkspace and Shell have it."""

    path: str
    id: str
    copied_from: str = ""
    refusal: str = ""
    keeps_read_only: bool = False


class NormaliseCall(Struct, frozen=True):
    """As Workspace.normalise."""

    place: HostPlace
    path: str
    writing: bool = False


class FindCall(Struct, frozen=True):
    """As Workspace.find."""

    place: HostPlace
    path: str


class GatherCall(Struct, frozen=True):
    """As Workspace.gather."""

    place: HostPlace
    path: str
    files_max: int
    bytes_max: int


class ReplaceCall(Struct, frozen=True):
    """As Workspace.replace."""

    place: HostPlace
    path: str
    content: str | None
    base_hash: str | None
    like: str = ""
    encoding: str = ""


class ScanCall(Struct, frozen=True):
    """As FileScanner.scan, for a scanner that has had so many scans; else the host begins anew.

    `like`: the scanner that this one is a copy of, if it has not scanned yet.
    """

    place: HostPlace
    scanner: str
    generation: int
    like: str = ""
    doubtful: tuple[str, ...] = ()


class ScanEnd(Struct, frozen=True):
    """The end of a scan, whose changed files came before. `is_new`: these are all files."""

    generation: int
    removed: tuple[str, ...] = ()
    is_new: bool = False


class RunCall(Struct, frozen=True):
    """As Shell.run. `lasts_ms`: how long the lease of its run lasts from now on; 0: there is none."""

    place: HostPlace
    command: str
    timeout_s: float
    read_only: bool = False
    is_owners: bool = True
    network: bool = True
    lasts_ms: int = 0


class ExtendCall(Struct, frozen=True):
    """The lease of a running command, by the id of its call."""

    call: str
    lasts_ms: int


class StopCall(Struct, frozen=True):
    """A command that is to stop, by the id of its call."""

    call: str


class HostProblem(Struct, frozen=True):
    """An error of a port: `outside`: OutsideProjectError; `too_much`: TooMuchError; `os`: OSError of this number."""

    kind: Literal["outside", "too_much", "os"]
    text: str
    number: int = 0


def _decoder(kind: Any) -> Decoder[Any]:
    return Decoder(kind)


ARGUMENTS: Final[Mapping[str, Decoder[Any]]] = {
    "locate": _decoder(LocateCall),
    "normalise": _decoder(NormaliseCall),
    "find": _decoder(FindCall),
    "gather": _decoder(GatherCall),
    "scan": _decoder(ScanCall),
    "replace": _decoder(ReplaceCall),
    "run": _decoder(RunCall),
    "extend": _decoder(ExtendCall),
    "stop": _decoder(StopCall),
}
"""Readers of the arguments of each tool."""

ANSWERS: Final[Mapping[str, Decoder[Any]]] = {
    "locate": _decoder(LocatedPlace | None),
    "normalise": _decoder(str),
    "find": _decoder(tuple[str, FileText | None]),
    "gather": _decoder(GatheredFiles | None),
    "scan": _decoder(ScanEnd),
    "replace": _decoder(bool),
    "run": _decoder(CommandEnd),
    "extend": _decoder(bool),
    "stop": _decoder(bool),
}
"""Readers of their answers."""

PIECES: Final = _decoder(list[ScannedFile])
"""Reader of the files in a message of a scan."""

PROBLEMS: Final = _decoder(HostProblem)


def encoded(value: object) -> str:
    """A value as JSON. Raises UnicodeEncodeError for what no file name in UTF-8 is."""
    return msgspec.json.encode(value).decode()
