"""Writes that steer a run: setting `run://{alias}` starts a loop, and a state on a path cancels or decides.

Source: rows RU035, RU037-RU040; decision C14.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, ValidationError
from msgspec.json import Decoder
from msgspec.structs import asdict
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Budget, LoopSettings, Mode, State

from turnwright_core.checks import invalid
from turnwright_core.limits import SPAN_S_MAX
from turnwright_core.text import scheme_of
from turnwright_kit.identity.caller import Caller
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.write_rules import (
    check_attributes,
    check_path,
    check_revision,
    check_writer,
    writer_of,
    written_paths,
)

_DECISIONS: Final = (State.RESOLVED, State.FAILED, State.CANCELLED)
"""States that decide a proposal: the first accepts, the others reject."""

_MODES: Final = {"ask": Mode.ASK, "act": Mode.ACT}


class BudgetAttributes(Struct, frozen=True, forbid_unknown_fields=True):
    """A Budget, as attributes give it: whoever may write can give any JSON, so nothing but this is taken."""

    turns_max: Annotated[int, Meta(ge=0, lt=2**32)] = 0
    tokens_max: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    cost_usd_max: Annotated[float, Meta(ge=0)] = 0.0
    wall_s_max: Annotated[float, Meta(ge=0, le=SPAN_S_MAX)] = 0.0


class RunAttributes(Struct, frozen=True, forbid_unknown_fields=True):
    """Those LoopSettings that attributes can give, taken as strictly; the others need a call."""

    mode: Literal["ask", "act"]
    model: str = ""
    no_repo: bool = False
    no_interaction: bool = False
    no_web: bool = False
    no_proposals: bool = False
    yolo: bool = False
    budget: BudgetAttributes | None = None
    project_instructions: bool | None = None
    summaries: bool | None = None
    synthetic: bool = False


_ATTRIBUTES: Final = Decoder(RunAttributes)


class StartLoop(Struct, frozen=True):
    """A write that starts a loop, as EnqueueLoop does."""

    path: str
    prompt: str
    settings: LoopSettings


class AbortLoop(Struct, frozen=True):
    """A write that asks for the end of the active loop, as AbortRun does."""

    path: str


class DecideProposal(Struct, frozen=True):
    """A write that decides a proposal, as ResolveProposal does."""

    path: str
    accept: bool
    comment: str


Steering = StartLoop | AbortLoop | DecideProposal

Shown = Mapping[str, tuple[int, int]]
"""State and revision of what a run sees, by path."""


def paths_to_look_at(writes: Sequence[EntryWrite]) -> list[str]:
    """The paths of writes that may steer the run, by what is there; most requests have none."""
    return list(dict.fromkeys(write.path for write in writes if _names_run(write) or _sets_decision(write)))


def split_by_steering(
    rules: StoreRules, caller: Caller, alias: str, writes: Sequence[EntryWrite], shown: Shown
) -> list[Steering | list[EntryWrite]]:
    """Writes in their order: those that steer the run, and what stands between them; empty if none steers.

    Raises INVALID_FIELD, REVISION_CONFLICT, and the errors of who may not write.
    """
    steering = [_steers(write, shown) for write in writes]
    if not any(steering):
        return []
    _check_once(writes)
    steps: list[Steering | list[EntryWrite]] = []
    for steers, group in groupby(zip(writes, steering, strict=True), key=lambda pair: pair[1]):
        part = [write for write, _ in group]
        if not steers:
            steps.append(part)
            continue
        for write in part:
            check_path(write.path)
            _, revision = shown.get(write.path, (0, 0))
            check_revision(write.path, write.expected_revision, revision)
            steps.append(_steering_of(rules, caller, alias, write))
    return steps


def _names_run(write: EntryWrite) -> bool:
    return scheme_of(write.path) == "run"


def _sets_decision(write: EntryWrite) -> bool:
    return isinstance(write.change, SetEntry) and write.change.state in _DECISIONS


def _steers(write: EntryWrite, shown: Shown) -> bool:
    change = write.change
    if not isinstance(change, SetEntry):
        return False
    if _names_run(write):
        return change.body is not None or change.state is State.CANCELLED
    return _sets_decision(write) and write.path in shown and shown[write.path][0] == State.PROPOSED


def _check_once(writes: Sequence[EntryWrite]) -> None:
    """Refuse a path that is written twice: writes between two steering writes are applied separately."""
    counts = Counter(path for write in writes for path in written_paths(write))
    path, count = counts.most_common(1)[0]
    if count > 1:
        raise invalid(
            "path", f"A request that steers a run may write each path only once; {path} appears more than once."
        )


def _steering_of(rules: StoreRules, caller: Caller, alias: str, write: EntryWrite) -> Steering:
    """What a write asks for. Raises INVALID_FIELD."""
    path, change = write.path, write.change
    assert isinstance(change, SetEntry)
    if not _names_run(write):
        _check_only(change, SetEntry(change.body, state=change.state))
        return DecideProposal(path, change.state is State.RESOLVED, change.body or "")
    check_writer(rules.scheme("run"), writer_of(caller, write.writer), path)
    if path != f"run://{alias}":
        message = f"The run {alias} is steered by run://{alias}; name the other run in the request."
        raise invalid("path", message)
    if change.state is State.CANCELLED:
        _check_only(change, SetEntry(state=State.CANCELLED))
        return AbortLoop(path)
    _check_only(change, SetEntry(change.body, change.attributes_json))
    return StartLoop(path, change.body or "", _settings(change.attributes_json or "{}"))


def _check_only(change: SetEntry, allowed: SetEntry) -> None:
    if change != allowed:
        raise invalid(
            "set",
            "A write that steers a run must not set anything else: set body and attributes to start a loop, only the "
            "state to cancel one, state and comment to decide a proposal.",
        )


def _settings(text: str) -> LoopSettings:
    """The settings of a loop from attributes. Raises InvalidError."""
    check_attributes(text)
    try:
        given = _ATTRIBUTES.decode(text)
    except ValidationError as error:
        names = ", ".join(RunAttributes.__struct_fields__)
        raise invalid("attributes_json", f"The attributes of a run are {names}: {error}.") from None
    settings = {**asdict(given), "budget": Budget(**asdict(given.budget)) if given.budget else None}
    return LoopSettings(**settings | {"mode": _MODES[given.mode]})
