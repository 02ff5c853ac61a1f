"""Records in the ledger: the entry `log://turn_N/{tool}/{slug}` of a command, and the writes that keep it.

The only place that knows how a record is kept among the attributes of its entry.
Source: rows RU075, RU128, RU149, RU153; decisions C10, C12, C26.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from turnwright_core.entries import Entry, EntryWrite, SetEntry, State, Tier, Visibility, to_attributes_json
from turnwright_executor.domain.command_record import ClientCall, CommandRecord, Decision, Ruling
from turnwright_executor.domain.effect_class import EffectClass
from turnwright_executor.domain.effects import Effect, effect_from_json, effect_to_json
from turnwright_executor.tools.contract import Done
from turnwright_grammar import Command

_KEPT: Final = frozenset(
    {"tool", "target", "command", "ordinal", "effect_class", "key", "effect", "dispatched", "interrupted", "decision"}
    | {"principal", "request", "owner", "beat"}
)
"""Attributes that are fields of a record; all others are what tools say."""

_RULINGS: Final[Mapping[Any, Ruling]] = {ruling.value: ruling for ruling in Ruling}


def is_command(entry: Entry) -> bool:
    """Whether an entry below a turn's records is that of a command; errors and messages stand there too."""
    return "ordinal" in entry.attributes and is_ours(entry)


def is_ours(entry: Entry) -> bool:
    """Whether a record may be carried out, or is over.

    `log://` is open to models and plugins too: an open record of theirs might name an effect that nobody proposed, and
    a decision that nobody made.
    """
    return entry.state.is_settled or entry.writer is Tier.SYSTEM


def is_dispatched(entry: Entry) -> bool:
    """Whether the effect of a command may have begun, as its record says."""
    return bool(entry.attributes.get("dispatched"))


def effect_of(entry: Entry) -> Effect | None:
    """What a record wants to do; None for a plugin's own words."""
    return _effect(entry.attributes.get("effect"))


def record_from_entry(entry: Entry) -> CommandRecord:
    """A record as the ledger holds it; one that was too large to be kept has an empty command and is settled."""
    kept = entry.attributes
    command = kept.get("command")
    decision, call = kept.get("decision"), kept.get("request")
    return CommandRecord(
        path=entry.path,
        tool=kept["tool"],
        target=str(kept.get("target", "")),
        command=Command(command["name"], dict(command["attributes"]), command["body"])
        if command
        else Command(kept["tool"]),
        ordinal=kept.get("ordinal"),
        effect_class=EffectClass(kept.get("effect_class", EffectClass.OUTSIDE.value)),
        key=str(kept.get("key", "")),
        state=entry.state,
        outcome=entry.outcome,
        body=entry.body,
        effect=_effect(kept.get("effect")),
        is_dispatched=bool(kept.get("dispatched")),
        interrupted=_effect(kept.get("interrupted")),
        decision=_decision(decision) if isinstance(decision, dict) else None,
        call=ClientCall(str(kept.get("principal", "")), str(call), str(kept.get("owner") or "")) if call else None,
        attributes={name: value for name, value in kept.items() if name not in _KEPT},
    )


def _effect(kept: dict[str, Any] | None) -> Effect | None:
    """An effect; None also for one that this version does not know: its command is prepared again."""
    try:
        return effect_from_json(kept) if kept else None
    except (KeyError, TypeError, ValueError):
        return None


def _decision(kept: Mapping[str, Any]) -> Decision | None:
    ruling, contents = _RULINGS.get(kept.get("decision")), kept.get("contents")
    if ruling is None:
        return None
    return Decision(
        ruling,
        str(kept.get("comment", "")),
        str(kept.get("principal", "")),
        int(kept.get("time_ms", 0)),
        contents if isinstance(contents, dict) else {},
        tuple(kept.get("edited", ())),
        bool(kept.get("client_runs")),
    )


def kept_attributes(record: CommandRecord) -> dict[str, Any]:
    """The attributes of the entry that keeps a record."""
    command, call = record.command, record.call
    kept: dict[str, Any] = {
        "tool": record.tool,
        "target": record.target,
        "command": {"name": command.name, "attributes": dict(command.attributes), "body": command.body},
        "ordinal": record.ordinal,
        "effect_class": record.effect_class.value,
        "key": record.key or None,
        "effect": effect_to_json(record.effect) if record.effect else None,
        "dispatched": record.is_dispatched or None,
        "interrupted": effect_to_json(record.interrupted) if record.interrupted else None,
        "decision": _decision_kept(record.decision) if record.decision else None,
        **({"principal": call.principal, "request": call.request, "owner": call.owner or None} if call else {}),
    }
    return {**{name: value for name, value in kept.items() if value is not None}, **record.attributes}


def _decision_kept(decision: Decision) -> dict[str, Any]:
    kept = {
        "contents": dict(decision.contents),
        "edited": list(decision.edited),
        "client_runs": decision.client_runs,
    }
    return {
        "decision": decision.ruling.value,
        "comment": decision.comment,
        "principal": decision.principal,
        "time_ms": decision.time_ms,
        **{name: value for name, value in kept.items() if value},
    }


def attributes_bytes(record: CommandRecord) -> int:
    """How long the attributes are that keep a record, in bytes of JSON."""
    return len(to_attributes_json(kept_attributes(record)).encode(errors="replace"))


def settled(record: CommandRecord, done: Done) -> CommandRecord:
    """The record with the outcome of its command."""
    return record.settled(done.state, done.outcome, done.body, done.attributes)


def record_write(record: CommandRecord) -> EntryWrite:
    """The write that brings the ledger's row to what the record says."""
    # To the store a set to RECORDED is a new record, which never takes the place of another one.
    state = State.UNSPECIFIED if record.state is State.RECORDED else record.state
    change = SetEntry(
        body=record.body,
        attributes_json=to_attributes_json(kept_attributes(record)),
        state=state,
        outcome=record.outcome,
    )
    return EntryWrite(record.path, change, Tier.SYSTEM)


def new_record_write(record: CommandRecord) -> EntryWrite:
    """The write that makes a new record durable."""
    change = SetEntry(
        body=record.body,
        attributes_json=to_attributes_json(kept_attributes(record)),
        visibility=Visibility.VISIBLE,
        state=record.state,
        outcome=record.outcome,
    )
    return EntryWrite(record.path, change, Tier.SYSTEM)


def released_write(path: str) -> EntryWrite:
    """The write by which the owner of a client's command leaves it to another one."""
    return _merged(path, {"owner": ""})


def beat_write(path: str, number: int) -> EntryWrite:
    """The write by which the owner of a client's command shows that it lives."""
    return _merged(path, {"beat": number})


def _merged(path: str, attributes: dict[str, Any]) -> EntryWrite:
    return EntryWrite(path, SetEntry(merge_attributes_json=to_attributes_json(attributes)), Tier.SYSTEM)


def error_write(path: str, outcome: str, body: str) -> EntryWrite:
    """A failure that no command can carry (RU153): `path` is `log://turn_N/error/{slug}`."""
    change = SetEntry(
        body=body,
        attributes_json=to_attributes_json({"tool": "error"}),
        visibility=Visibility.VISIBLE,
        state=State.FAILED,
        outcome=outcome,
    )
    return EntryWrite(path, change, Tier.SYSTEM)
