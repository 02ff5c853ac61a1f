"""What tools need from the host: the project's files and a shell.

Paths are relative to the project's root, with forward slashes. Confinement is the adapter's promise: a path that
leaves the root, through `..`, an absolute path or a symbolic link, is an OutsideProject, whatever the operation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct

from turnwright_core.plans import Plan


class OutsideProjectError(Exception):
    """The path leaves the project's root. The text says which path."""


class FileText(Struct, frozen=True):
    """A file as it was read: its text (None where it is not UTF-8), and the SHA-256 of its bytes in hexadecimal."""

    text: str | None
    hash: str
    bytes_: int


class ScannedFile(Struct, frozen=True):
    """A project file found by a scan; `text` is None where it is not UTF-8 or over the size limit."""

    path: str
    text: str | None
    hash: str
    bytes_: int
    is_added: bool = False
    """Whether the project asks for it by `add`."""


class TooMuchError(Exception):
    """There is more than a limit allows. The text says how much that is."""


class GatheredFiles(Struct, frozen=True):
    """What stands at a path. `files`: the bytes by the path below the folder; of one file, by its name."""

    is_folder: bool
    files: Mapping[str, bytes]
    left_out: tuple[str, ...] = ()
    """What was not read, each with the reason: `notes.lnk (a link)`."""


class Workspace(Protocol):
    """The files of one project."""

    async def normalise(self, path: str, *, writing: bool = False) -> str:
        """The path relative to the root in its one spelling: links followed, no `..`.

        Raises OutsideProjectError, OSError.

        The former too for what belongs to version control or to the runtime and for what the project ignores, and
        with `writing` for what it calls read-only.
        """

    async def read(self, path: str) -> FileText | None:
        """The file, None where there is none. Raises OutsideProjectError, OSError."""

    async def find(self, path: str) -> tuple[str, FileText | None]:
        """The path in its one spelling and the file there, in one step. Raises as `normalise` and `read` do."""

    async def gather(self, path: str, files_max: int, bytes_max: int) -> GatheredFiles | None:
        """The file at a path, or all files below a folder; None where neither is.

        Raises OutsideProjectError, TooMuchError, OSError.
        """

    async def replace(self, path: str, content: str | None, base_hash: str | None, like: str = "") -> bool:
        """Write or (None) delete atomically if the file still has the base hash; False when it has not.

        The path is one of `normalise`: an OutsideProjectError where it leads to another file by now. A file that
        already is what it shall become counts as done. A file keeps its mode; a new one gets that of the file `like`,
        if there is one. Raises OutsideProjectError, OSError.
        """


class ChangedFile(Struct, frozen=True):
    """A file of the project that became another one; `kind` is `create`, `change` or `remove`."""

    path: str
    kind: str


class CommandEnd(Struct, frozen=True):
    """How a command ended: exit code (negative: the signal), seconds, whether a limit stopped it."""

    exit_code: int
    duration_s: float
    timed_out: bool
    output_cut: bool
    """Whether the middle of an output was left out."""
    too_many_processes: bool = False
    out_of_memory: bool = False
    changed: tuple[ChangedFile, ...] | None = None
    """The project's files that changed while the command ran, by path; None where nobody compared them."""


class Shell(Protocol):
    """Runs commands under limits, in the project's root, without secrets in the environment."""

    @property
    def keeps_read_only(self) -> bool:
        """Whether a command can be kept from changing the project."""

    async def run(
        self,
        command: str,
        timeout_s: float,
        on_output: Callable[[int, str], Awaitable[None]],
        *,
        read_only: bool = False,
    ) -> CommandEnd:
        """Run to the end; output arrives as (channel, text), 1 standard output, 2 standard error.

        All its processes are stopped when the limit is reached or the call is cancelled; output until then arrives
        before the call ends. `read_only` keeps the command from changing the project, where that can be done.
        """


class WebError(Exception):
    """The web did not give what was asked for: `outcome` is `word:code`, the text tells the model what to do."""

    def __init__(self, outcome: str, text: str) -> None:
        """Keep both."""
        super().__init__(text)
        self.outcome = outcome


class Plans(Protocol):
    """The plans of the run: the only way to write them. Every method that waits raises TurnwrightError."""

    async def get(self, plan_id: str, version: int = 0) -> Plan:
        """A plan with its deltas; 0: its latest version."""

    async def set(self, plan: Plan, key: str) -> Plan:
        """Create or replace a plan. The same key has the same answer: nothing happens twice. Empty: none."""

    async def update(self, plan_id: str, text: str, key: str) -> Plan:
        """Add to a plan. The same key has the same answer."""

    def scoped(self, tool: str) -> Plans:
        """The plans of a plugin's tool: whatever it names is its own, `{tool}-{plan_id}`, and never another one's."""


class Page(Struct, frozen=True):
    """A page as text. `address`: where it was found in the end, after redirects."""

    address: str
    title: str
    text: str
    media_type: str
    is_cut: bool = False
    """Whether the end of it was left out."""


class Download(Struct, frozen=True):
    """The bytes of something on the web, whole."""

    address: str
    media_type: str
    data: bytes


class WebResult(Struct, frozen=True):
    """One result of a search; each text is one line without control characters."""

    address: str
    title: str
    snippet: str


class Web(Protocol):
    """The web, as far as the operator lets commands reach it. Every method raises WebError, and ends in time."""

    async def page(self, address: str) -> Page:
        """The page at an address of domain.pages."""

    async def download(self, address: str, bytes_max: int) -> Download:
        """What stands at an address; an error where it has more bytes."""

    async def search(self, query: str, results_max: int) -> list[WebResult]:
        """What the search engine finds, the best first."""
