"""What becomes of one path in one request: the stored state, the writes applied in order, what is to be stored.

Theory of operation. A slot begins as what is stored: what the run sees of the path (its sight) and what the entry
holds (its content). Writes change the slot in memory; only the outcome is stored, so that a request costs the same
few statements however often it writes a path. A body that is neither given nor needed is never read.

Source: rows RU021, RU023-RU025, RU055-RU057, RU090-RU095; architecture 3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from turnwright_core.entries import AppendEntry, RemoveEntry, SetEntry, State, Tier, Visibility
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import BODY_BYTES_MAX
from turnwright_store.domain.checks import invalid, over_limit

ReadBody = Callable[[int, int, int], str]
"""(entry, version, bytes of chunks on top) -> body."""

OUTCOME_STATES = (State.FAILED, State.CANCELLED)
"""The states that carry an outcome (RU018)."""


@dataclass(slots=True)
class Sight:
    """A run's view of an entry. `id` is the stored interval, 0 for one that is not stored yet."""

    id: int
    revision: int
    chunk_bytes: int
    visibility: Visibility
    state: State
    outcome: str
    turn: int
    loop: int
    position: int
    """0 until it is assigned."""
    write_count: int


@dataclass(frozen=True, slots=True)
class Content:
    """A stored version of an entry, without its body."""

    entry: int
    rev: int
    hash: str
    body_bytes: int
    writer: Tier
    attributes: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A version that is to be stored."""

    body: str
    body_bytes: int
    hash: str
    attributes: str
    writer: Tier


def draft(body: str, attributes: str, writer: Tier) -> Draft:
    """A version with its digest."""
    data = body.encode()
    return Draft(body, len(data), hashlib.sha256(data).hexdigest(), attributes, writer)


@dataclass(slots=True)
class Slot:
    """One path of one run."""

    path: str
    scheme: str
    scope: int
    shared: bool
    """Whether the entry lives in a scope that other runs read too; its views then follow the head."""
    content: Content | None
    sight: Sight | None
    draft: Draft | None = None
    appended: str = ""
    """Text that goes into a chunk."""
    closed: list[int] = field(default_factory=list)
    """Ids of stored intervals that end."""
    touched: bool = False

    @property
    def stored_revision(self) -> int:
        """Revision of the stored view, 0 when there is none."""
        return self.sight.revision if self.sight else 0

    @property
    def is_taken(self) -> bool:
        """Whether the path was ever used."""
        return self.content is not None or self.draft is not None

    def apply(self, change: SetEntry | AppendEntry | RemoveEntry, stamp: Stamp, read_body: ReadBody) -> bool:
        """Apply one write; whether it changed anything."""
        if isinstance(change, RemoveEntry):
            return self._remove(stamp.writer, read_body)
        if isinstance(change, AppendEntry):
            self._append(change.text, stamp, read_body)
        else:
            self._set(change, stamp, read_body)
        self.touched = True
        return True

    def stored_as(self, entry: int, rev: int) -> None:
        """The draft is stored now, under this entry and revision of its scope."""
        assert self.draft
        self.content = Content(
            entry, rev, self.draft.hash, self.draft.body_bytes, self.draft.writer, self.draft.attributes
        )

    def _remove(self, writer: Tier, read_body: ReadBody) -> bool:
        if self.sight is None:
            return False
        # What was appended is folded, so that whoever adds the entry again finds its whole body.
        self._set_content(SetEntry(), writer, read_body)
        self._close()
        self.sight = None
        self.touched = True
        return True

    def _close(self) -> None:
        if self.sight is not None and self.sight.id:
            self.closed.append(self.sight.id)
            self.sight.id = 0

    def _set(self, change: SetEntry, stamp: Stamp, read_body: ReadBody) -> None:
        if not self.is_taken and change.body is None and change.attributes_json is None and not change.state:
            raise fault(Reason.ENTRY_NOT_FOUND, f"There is no entry {self.path} to change.", path=self.path)
        self._set_content(change, stamp.writer, read_body)
        old = self.sight
        state = change.state or (old.state if old else State.RESOLVED)
        outcome = change.outcome
        if outcome is None:
            outcome = old.outcome if old and old.state is state else ""
        if outcome and state not in OUTCOME_STATES:
            raise invalid("outcome", f"{self.path}: only failed and cancelled entries have an outcome.")
        initial = change.initial_visibility or Visibility.VISIBLE
        visibility = change.visibility or (old.visibility if old else initial)
        self._see(stamp, visibility, state, outcome)

    def _see(self, stamp: Stamp, visibility: Visibility, state: State, outcome: str) -> None:
        old = self.sight
        self._close()
        self.sight = Sight(
            id=0,
            revision=old.revision if old else 0,
            chunk_bytes=old.chunk_bytes if old else 0,
            visibility=visibility,
            state=state,
            outcome=outcome,
            turn=stamp.turn_for(old),
            loop=stamp.loop_for(old),
            position=old.position if old else 0,
            write_count=old.write_count + 1 if old else 1,
        )

    def _set_content(self, change: SetEntry, writer: Tier, read_body: ReadBody) -> None:
        """Make a draft where the body or the attributes differ from what is there; fold what was appended."""
        grown = bool(self.appended or (self.sight and self.sight.chunk_bytes))
        attributes = self._attributes if change.attributes_json is None else change.attributes_json
        if change.body is not None or not self.is_taken:
            new = draft(change.body or "", attributes, writer)
            if grown or (new.hash, new.attributes) != (self._hash, self._attributes):
                self.draft = new
        elif grown or attributes != self._attributes:
            kept = self._writer if change.attributes_json is None else writer
            self.draft = draft(self._body(read_body), attributes, kept)
        self.appended = ""
        if self.sight:
            self.sight.chunk_bytes = 0

    def _append(self, text: str, stamp: Stamp, read_body: ReadBody) -> None:
        sight = self.sight
        if sight is None:
            raise fault(Reason.ENTRY_NOT_FOUND, f"There is no entry {self.path} to append to.", path=self.path)
        if sight.state is not State.STREAMING:
            raise fault(
                Reason.TRANSITION_FORBIDDEN,
                f"{self.path} is {sight.state.name.lower()}; only a streaming entry can be appended to.",
                **{"from": sight.state.name.lower(), "to": "streaming", "object": self.path},
            )
        total = self._body_bytes + sight.chunk_bytes + len(self.appended.encode()) + len(text.encode())
        if total > BODY_BYTES_MAX:
            raise over_limit("body", BODY_BYTES_MAX, total, "bytes")
        if self.shared or self.draft:
            # A shared body has several readers and perhaps several writers: its chunks would be nobody's own.
            self.draft = draft(self._body(read_body) + text, self._attributes, stamp.writer)
        else:
            self.appended += text
        self._see(stamp, sight.visibility, sight.state, sight.outcome)

    @property
    def _hash(self) -> str:
        return self.draft.hash if self.draft else self.content.hash if self.content else ""

    @property
    def _attributes(self) -> str:
        return self.draft.attributes if self.draft else self.content.attributes if self.content else "{}"

    @property
    def _body_bytes(self) -> int:
        return self.draft.body_bytes if self.draft else self.content.body_bytes if self.content else 0

    @property
    def _writer(self) -> Tier:
        return self.draft.writer if self.draft else self.content.writer if self.content else Tier.SYSTEM

    def _body(self, read_body: ReadBody) -> str:
        if self.draft:
            return self.draft.body + self.appended
        if self.content is None:
            return self.appended
        chunk_bytes = self.sight.chunk_bytes if self.sight else 0
        return read_body(self.content.entry, self.content.rev, chunk_bytes) + self.appended


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who writes, and what the view is stamped with: `turn` and `loop` win, else a view keeps its own."""

    writer: Tier
    turn: int | None
    loop: int | None
    turn_now: int
    loop_now: int

    def turn_for(self, old: Sight | None) -> int:
        """The turn to stamp: the write's, else the view's, else the current one."""
        if self.turn is not None:
            return self.turn
        return old.turn if old else self.turn_now

    def loop_for(self, old: Sight | None) -> int:
        """The loop to stamp: the write's, else the view's, else the current one."""
        if self.loop is not None:
            return self.loop
        return old.loop if old else self.loop_now
