"""The state of one path during a request: what is stored, the writes applied in order, what is to be stored.

Theory of operation. A path state begins as what is stored: the run's view of the path, the content of the entry, and
the tail that was appended to it. Writes change the state in memory; only the result is stored, so a request costs the
same few statements however often it writes a path.

A body has three parts: the content, the tail of chunks, and what this request appends. A draft replaces all of them.
A stored body is read only if a write needs it: an append stores a chunk, a close or a removal leaves the chunks alone.

The content may be in another scope than the path's own: a fork sees the entries of its ancestors. A write creates a
version in the path's own scope (copy-on-write); a change of the view alone does not (C18).

Source: rows RU021, RU023-RU027, RU055-RU060, RU090-RU095; C18; architecture 3.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field
from turnwright_values.store import AppendEntry, RemoveEntry, SetEntry
from turnwright_values.types import State, Tier, Visibility

from turnwright_core.checks import invalid, over_limit, transition_forbidden
from turnwright_core.errors import Reason, fault
from turnwright_core.value_methods import to_attributes_json
from turnwright_store.domain.limits import WriteLimits

# JSON merge patches for the attributes of entries.
#
# Source: RFC 7386; row RU023.


def merge_attributes(attributes_json: str, patch_json: str) -> str:
    """Attributes after a merge patch; the same text if the patch changes nothing. Both are JSON objects."""
    before = _document(attributes_json)
    after = apply_merge_patch(before, _document(patch_json))
    text = attributes_text(after)
    # Values that are equal may be written differently, as 1 and true.
    return attributes_json if after == before and text == attributes_text(before) else text


def _document(text: str) -> Any:
    try:
        # It takes a quarter of the time, but refuses numbers that are too large, and unpaired surrogates.
        return msgspec.json.decode(text)
    except ValueError:
        return json.loads(text, parse_float=_finite)


def _finite(text: str) -> float:
    """A number that can be serialized again: JSON cannot represent infinity."""
    number = float(text)
    if not isfinite(number):
        raise invalid("merge_attributes_json", f"The number {text:.20} is too large to be merged.")
    return number


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """A document after a merge patch: null removes a member, an object is merged, anything else replaces.

    The arguments are not modified.
    """
    if not isinstance(patch, dict):
        return patch
    result: dict[str, Any] = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result


def attributes_text(attributes: dict[str, Any]) -> str:
    """Attributes as text, with escapes if an unpaired surrogate could not be stored otherwise."""
    text = to_attributes_json(attributes)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(attributes, separators=(",", ":"))
    return text


OUTCOME_STATES = (State.FAILED, State.CANCELLED)
"""The states that carry an outcome (RU018)."""


class View(Struct):
    """A run's view of an entry. `id` is the stored interval, 0 for one that is not stored yet."""

    id: int
    revision: int
    visibility: Visibility
    state: State
    outcome: str
    turn: int
    loop: int
    position: int
    """0 until it is assigned."""
    write_count: int


# A tuple is made many times as fast as a frozen dataclass, and each entry of a request has one or two of these.
class EntryVersion(NamedTuple):
    """A version of an entry: as it is stored, or a draft, which is to be stored."""

    entry: int
    """0 for a draft."""
    scope: int
    version: int
    """Id of the version; 0 for a draft, whose body is known."""
    rev: int
    hash: str
    """The digest of the body, without appended chunks."""
    body_size_bytes: int
    """Without what was appended."""
    writer: Tier
    attributes: str
    record: bytes
    create_ms: int
    """When it was written, in milliseconds since 1970."""
    body: str | None = None
    """None: only the database has it."""


class ReplacedView(Struct, frozen=True):
    """A stored view that a write ends."""

    view: int
    path: str
    scheme: str
    scope: str
    """Of the entry that it showed."""
    visibility: Visibility
    state: State


ReadBody = Callable[[EntryVersion, int], str]
"""(version, bytes of its tail) -> body."""


class HomeScope(Struct, frozen=True):
    """The scope in which entries of a path are created, by its scheme."""

    scope: int
    shared: bool
    """Whether other runs read the scope too; views of its entries then follow the head."""


class PathState(Struct):
    """The state of one path of one run: its stored view and content, and what the writes of a request made of them."""

    path: str
    scheme: str
    home: HomeScope
    home_entry: int
    """The entry in the path's own scope; 0: none yet."""
    limits: WriteLimits
    content: EntryVersion | None
    tail: int
    """Bytes of chunks on top of the content."""
    view: View | None
    before: View | None
    """The stored view; it ends if the view is another one."""
    before_scope: int
    """Of the entry that the stored view shows."""
    is_draft: bool = False
    """Whether the content is to be stored."""
    appended: list[str] = field(default_factory=list)
    """Appended after the content and its tail."""
    appended_bytes: int = 0
    touched: bool = False

    @property
    def is_inherited(self) -> bool:
        """Whether the visible entry is in another scope than the path's own."""
        return self.content is not None and self.content.scope != self.home.scope

    @property
    def body_size_bytes(self) -> int:
        return self.content.body_size_bytes + self.tail + self.appended_bytes if self.content else 0

    def body(self, read_body: ReadBody) -> str:
        if self.content is None:
            return ""
        base = self.content.body
        return "".join([read_body(self.content, self.tail) if base is None else base, *self.appended])

    def apply(self, change: SetEntry | AppendEntry | RemoveEntry, stamp: WriteStamp, read_body: ReadBody) -> bool:
        """Apply one write; whether it changed anything."""
        if isinstance(change, SetEntry):
            self._set(change, stamp, read_body)
        elif isinstance(change, AppendEntry):
            self._append(self._missing(change), stamp, read_body)
        else:
            return self._remove()
        self.touched = True
        return True

    def copy_write(self, visibility: Visibility, read_body: ReadBody) -> SetEntry:
        """A write that copies this entry. Raises ENTRY_NOT_FOUND if the run does not see it.

        A copy is resolved, whatever the state of its source, and has no command record.
        """
        if self.view is None:
            raise fault(Reason.ENTRY_NOT_FOUND, f"There is no entry {self.path} to copy.", path=self.path)
        assert self.content
        return SetEntry(
            self.body(read_body),
            self.content.attributes,
            visibility=visibility or self.view.visibility,
            state=State.RESOLVED,
            record=b"",
        )

    def merge_appended(self, read_body: ReadBody) -> None:
        """Merge appended text into a draft if the entry is shared: chunks have a single writer."""
        if self.appended and self.home.shared and self.content:
            self._draft(self.body(read_body), self.content.attributes, self.content.record, self.content.writer)

    def _remove(self) -> bool:
        if self.view is None:
            return False
        if self.is_inherited:
            # It is in no scope of this run; without its view the run does not know it.
            self.content, self.tail = None, 0
        self.view = None
        self.touched = True
        return True

    def _set(self, change: SetEntry, stamp: WriteStamp, read_body: ReadBody) -> None:
        given = changes_content(change)
        if given or not self.content:
            if not (given or change.state):
                raise fault(Reason.ENTRY_NOT_FOUND, f"There is no entry {self.path} to change.", path=self.path)
            self._set_content(change, stamp.writer, read_body)
        old = self.view
        state = change.state or (old.state if old else State.RESOLVED)
        outcome = change.outcome
        if outcome is None:
            outcome = old.outcome if old and old.state is state else ""
        if outcome and state not in OUTCOME_STATES:
            raise invalid("outcome", f"{self.path}: only failed and cancelled entries have an outcome.")
        initial = change.initial_visibility or Visibility.VISIBLE
        visibility = change.visibility or (old.visibility if old else initial)
        self._see(stamp, visibility, state, outcome)

    def _see(self, stamp: WriteStamp, visibility: Visibility, state: State, outcome: str) -> None:
        old = self.view or View(0, 0, visibility, state, "", stamp.turn_now, stamp.loop_now, 0, 0)
        turn = old.turn if stamp.turn is None else stamp.turn
        loop = old.loop if stamp.loop is None else stamp.loop
        count = old.write_count + 1
        self.view = View(0, old.revision, visibility, state, outcome, turn, loop, old.position, count)

    def _set_content(self, change: SetEntry, writer: Tier, read_body: ReadBody) -> None:
        """Make a draft where the body, the attributes or the record differ from what is there."""
        old = self.content
        # A run that took its own entry away and writes another one: nobody sees what the old one said any more.
        is_anew = old is None or (change.body is not None and self.view is None and not self.home.shared)
        attributes, record = change.attributes_json, change.record
        if attributes is None:
            attributes = "{}" if is_anew or old is None else old.attributes
        if change.merge_attributes_json is not None:
            attributes = self._merge(attributes, change.merge_attributes_json)
        if record is None:
            record = b"" if is_anew or old is None else old.record
        if old is None:
            self._draft(change.body or "", attributes, record, writer)
        elif change.body is None:
            if self.is_inherited or (attributes, record) != (old.attributes, old.record):
                self._draft(self.body(read_body), attributes, record, writer)
        else:
            is_whole = not (self.tail or self.appended or self.is_inherited)
            self._draft(change.body, attributes, record, writer)
            new = self.content
            assert new
            if is_whole and (new.hash, attributes, record) == (old.hash, old.attributes, old.record):
                self.content, self.is_draft = old._replace(body=change.body), not old.entry

    def _merge(self, attributes: str, patch: str) -> str:
        merged = merge_attributes(attributes, patch)
        actual = len(merged.encode())
        if actual > self.limits.attributes_bytes_max:
            raise over_limit("merge_attributes_json", self.limits.attributes_bytes_max, actual, "bytes")
        return merged

    def _missing(self, change: AppendEntry) -> str:
        """The part of a repeated append that the body does not have yet. Raises REVISION_CONFLICT."""
        there = self.body_size_bytes
        if change.offset is None or change.offset == there:
            return change.text
        if 0 <= change.offset < there:
            data = change.text.encode()[there - change.offset :]
            # A piece that is there ends at a character, so that a rest which does not is another text.
            if not data or data[0] & 0xC0 != 0x80:
                return data.decode()
        raise fault(
            Reason.REVISION_CONFLICT,
            f"{self.path} has {there} bytes, and the appended text would leave a gap: append from {there}.",
            path=self.path,
            expected=change.offset,
            actual=there,
        )

    def _append(self, text: str, stamp: WriteStamp, read_body: ReadBody) -> None:
        view = self.view
        if view is None:
            raise fault(Reason.ENTRY_NOT_FOUND, f"There is no entry {self.path} to append to.", path=self.path)
        if view.state is not State.STREAMING:
            state = view.state.name.lower()
            message = f"{self.path} is {state}; only a streaming entry can be appended to."
            raise transition_forbidden(self.path, state, "streaming", message)
        added = len(text.encode())
        if self.body_size_bytes + added > self.limits.body_bytes_max:
            raise over_limit("body", self.limits.body_bytes_max, self.body_size_bytes + added, "bytes")
        content = self.content
        if text and content and not self.is_draft and (self.home.shared or self.is_inherited):
            # Chunks of an inherited body would grow in the entry of another run, which may go on with it.
            self._draft(self.body(read_body), content.attributes, content.record, stamp.writer)
        if text:
            self.appended.append(text)
            self.appended_bytes += added
        self._see(stamp, view.visibility, view.state, view.outcome)

    def _draft(self, body: str, attributes: str, record: bytes, writer: Tier) -> None:
        data = body.encode()
        digest = hashlib.sha256(data).hexdigest()
        self.content = EntryVersion(0, self.home.scope, 0, 0, digest, len(data), writer, attributes, record, 0, body)
        self.is_draft, self.tail, self.appended, self.appended_bytes = True, 0, [], 0


def changes_content(change: SetEntry) -> bool:
    """Whether a write changes more than the view."""
    attributes = change.attributes_json if change.merge_attributes_json is None else change.merge_attributes_json
    return change.body is not None or attributes is not None or change.record is not None


class WriteStamp(Struct, frozen=True):
    """The writer of a write, and the turn and loop for its view: else the view's, else the current ones."""

    writer: Tier
    turn: int | None
    loop: int | None
    turn_now: int
    loop_now: int
