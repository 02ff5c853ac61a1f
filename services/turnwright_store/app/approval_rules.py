"""Approval rules: setting them, and what they say in the transaction of an effect. Source: docs/adr/0067."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright.rules.v1 import rule_service_pb2
from turnwright.types.v1 import command_record_pb2
from turnwright.types.v1.command_record_pb2 import CommandRecord
from turnwright_values.types import Mode, Permission, Right, Rule, RuleLevel, RuleSet, RuleVerdict

from turnwright_core.checks import check_bytes, check_chars, check_count, invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import NAME_CHARS_MAX, PATH_CHARS_MAX
from turnwright_core.rules import (
    RULES_MAX,
    IntendedEffect,
    RuleDecision,
    TargetError,
    check_target,
    decide,
    rule_words,
    targets_like,
)
from turnwright_core.rules_file import RulesFileError, parse_rules
from turnwright_core.turn_settings import Ruling, ruling_of, yolo_of
from turnwright_core.wire.command_records import intended_effect, recorded_effect
from turnwright_kit.identity.caller import Caller
from turnwright_kit.identity.policy import rights_of
from turnwright_store.app.loop_rights import check_decider, check_works, may_affect
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.viewers import Asker, asker_json, asker_of, caller_of
from turnwright_store.ports import Transaction
from turnwright_store.sql import approval_rules as rows
from turnwright_store.sql.agents import FIRST_LOOP, runs_above
from turnwright_store.sql.approval_rules import RuleRow
from turnwright_store.sql.contents import find_entry
from turnwright_store.sql.registry import get_project
from turnwright_store.sql.runs import RunRow, get_run, load_runs

EFFECTS_MAX: Final = 200
"""Most effects that rules are asked about at a time."""

LINE_CHARS_MAX: Final = 16_384
"""Longest command line that they are asked about, in characters."""

TEXT_BYTES_MAX: Final = 262_144
"""Longest text of rules that are asked, in bytes."""

_LEVELS: Final = {RuleLevel.DEPLOYMENT: "deployment", RuleLevel.PROJECT: "project", RuleLevel.RUN: "run"}


def set_rule(tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, rule: Rule) -> Rule:
    """Set a rule of a project, or of a run if one is named.

    Raises RUN_NOT_FOUND, INVALID_FIELD, LIMIT_EXCEEDED, RIGHT_MISSING.
    """
    check_may_write(rules, caller, address)
    project_id, run_id = _place(tx.connection, address)
    _check(rule)
    made = Rule(0, RuleLevel.RUN if run_id else RuleLevel.PROJECT, rule.verdict, rule.tool, rule.target, rule.principal)
    made = replace(made, mode=rule.mode, network=rule.network, create_ms=tx.now_ms)
    by = asker_json(caller)
    number = rows.add_rule(tx.connection, project_id, run_id, RuleRow(made, by))
    check_count("rules", rows.count_rules(tx.connection, project_id, run_id), RULES_MAX)
    return _shown(rules, address.project, RuleRow(replace(made, id=number), by))


def _check(rule: Rule) -> None:
    if rule.verdict is RuleVerdict.UNSPECIFIED:
        raise invalid("rule.verdict", "rule.verdict is required: allow, ask or deny.")
    for field, name in (("rule.tool", rule.tool), ("rule.principal", rule.principal)):
        check_chars(field, name, NAME_CHARS_MAX)
        if name and not (name.isprintable() and " " not in name):
            raise invalid(field, f"{field} is a name, without blanks; it is {name!r}.")
    if rule.network and rule.verdict is not RuleVerdict.ALLOW:
        raise invalid("rule.network", "rule.network is for a rule that allows.")
    try:
        check_target(rule.tool, rule.target)
    except TargetError as error:
        raise invalid("rule.target", f"rule.target cannot be used: {error}.") from None


def delete_rule(tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, number: int) -> Rule:
    """Remove a rule; returns it. Raises RUN_NOT_FOUND, ENTRY_NOT_FOUND, RIGHT_MISSING."""
    check_may_write(rules, caller, address)
    removed = rows.remove_rule(tx.connection, *_place(tx.connection, address), number)
    if removed is None:
        where = address.run or address.project
        raise fault(Reason.ENTRY_NOT_FOUND, f"{where} has no rule {number}: list them.", path=str(number))
    return removed.rule


def _place(connection: Connection, address: RunRef) -> tuple[int, int]:
    """The keys of a project, and of a run if one is named. Raises PROJECT_NOT_FOUND, RUN_NOT_FOUND."""
    if not address.run:
        return get_project(connection, address.project).id, 0
    run = get_run(connection, address.project, address.run)
    return run.project_id, run.id


def list_rules(connection: Connection, rules: StoreRules, address: RunRef) -> RuleSet:
    """The rules that hold in a project, or in a run if one is named. Raises PROJECT_NOT_FOUND, RUN_NOT_FOUND."""
    if not address.run:
        found = rows.list_rules(connection, get_project(connection, address.project).id)
        own = tuple([_shown(rules, address.project, row) for row in found])
        return RuleSet(rules=(*rules.approval_rules, *own))
    return rules_in(connection, rules, get_run(connection, address.project, address.run)) or RuleSet()


def test_rules(
    connection: Connection,
    rules: StoreRules,
    address: RunRef,
    effects: Sequence[rule_service_pb2.TestedEffect],
    text: str | None,
    check_time: Callable[[], None],
) -> list[RuleDecision]:
    """What the rules that hold, or those of a text, decide about effects.

    Raises PROJECT_NOT_FOUND, RUN_NOT_FOUND, ENTRY_NOT_FOUND, INVALID_FIELD, LIMIT_EXCEEDED.
    """
    held = list_rules(connection, rules, address).rules
    if text is not None:
        check_bytes("rules_text", text, TEXT_BYTES_MAX)
        try:
            held = parse_rules(text, "the text")
        except RulesFileError as error:
            raise invalid("rules_text", f"{error}.") from None
    if not effects:
        raise invalid("effects", "effects is empty: say what is to be decided on.")
    check_count("effects", len(effects), EFFECTS_MAX)
    run = get_run(connection, address.project, address.run) if address.run else None
    decisions = []
    for one in effects:
        decisions.append(decide(held, _tested(connection, run, one)))
        check_time()
    return decisions


def _tested(connection: Connection, run: RunRow | None, one: rule_service_pb2.TestedEffect) -> IntendedEffect:
    for field, name in (("effects.tool", one.tool), ("effects.principal", one.principal)):
        check_chars(field, name, NAME_CHARS_MAX)
    mode = Mode(one.mode) or Mode.ACT
    match one.WhichOneof("what"):
        case "entry":
            if run is None:
                raise invalid("effects.entry", "An entry is one of a run: name the run.")
            entry = find_entry(connection, run, one.entry)
            if entry is None or not entry.record:
                message = f"{run.alias} has no record of a command at {one.entry[:PATH_CHARS_MAX]!r}: list its entries."
                raise fault(Reason.ENTRY_NOT_FOUND, message, path=one.entry[:PATH_CHARS_MAX])
            record = CommandRecord.FromString(entry.record)
            return recorded_effect(record, str(entry.attributes.get("target", "")), one.principal, mode)
        case "line":
            check_chars("effects.line", one.line, LINE_CHARS_MAX)
            return IntendedEffect(one.tool, one.line, (), one.principal, mode)
        case "place":
            check_chars("effects.place", one.place, PATH_CHARS_MAX)
            return IntendedEffect(one.tool, None, (one.place,), one.principal, mode)
    return IntendedEffect(one.tool, None, (), one.principal, mode)


def rules_in(connection: Connection, rules: StoreRules, run: RunRow, known: str | None = None) -> RuleSet | None:
    """The rules that hold in a run; None if there is none, or if `known` is their version."""
    if not (rules.approval_rules or run.rule_changes):
        return None if known in (None, "") else RuleSet()
    known_policy = rules.policy.version if rules.policy else 0
    version = f"{rules.approval_version}.{run.rule_changes}.{run.loop_active}.{known_policy}"
    if version == known:
        return None
    found = rows.list_rules(connection, run.project_id, run.id) if run.rule_changes else ()
    own = tuple([_shown(rules, run.project, row) for row in found])
    person = asker_of(run.asked_by)
    lifts = _lifts(rules, run.project, person) if person else RuleLevel.RUN
    return RuleSet(version, (*rules.approval_rules, *own), person.name if person else "", lifts)


def _shown(rules: StoreRules, project: str, row: RuleRow) -> Rule:
    author = asker_of(row.by)
    is_allow = row.rule.verdict is RuleVerdict.ALLOW
    lifts = _lifts(rules, project, author) if author and is_allow else RuleLevel.UNSPECIFIED
    return replace(row.rule, by=author.name if author else "", lifts=lifts)


def _lifts(rules: StoreRules, project: str, person: Asker) -> RuleLevel:
    """The highest level at which somebody may write rules now."""
    if person.root or rules.policy is None:
        return RuleLevel.DEPLOYMENT if person.root else RuleLevel.RUN
    caller = caller_of(person)
    if rights_of(rules.policy.rights_in_deployment(caller)).count(Right.ADMIN):
        return RuleLevel.DEPLOYMENT
    return RuleLevel.PROJECT if rules.policy.has(caller, Right.ADMIN, project) else RuleLevel.RUN


def check_may_write(rules: StoreRules, caller: Caller, address: RunRef) -> None:
    """Raises RIGHT_MISSING, PROJECT_NOT_FOUND for who may not write rules of a project, or of the run that is named."""
    right, what = (Right.COMMAND, "A rule of a run") if address.run else (Right.ADMIN, "A rule of a project")
    rules.check_right(caller, right, address.project, what)


def check_allowed(tx: Transaction, rules: StoreRules, run: RunRow, tool: str, record: bytes) -> bool:
    """Refuse an effect that is about to begin, unless it is still allowed.

    By the run without asking, where nobody has decided; what a client has called itself, if no rule denies it. Raises
    GRANT_WITHDRAWN, RULE_DENIED, and RIGHT_MISSING where the people behind it have lost their rights. Returns whether
    it is of the run's loop.
    """
    message = CommandRecord.FromString(record)
    held = rules_in(tx.connection, rules, run)
    if message.dispatched.permission == command_record_pb2.PERMISSION_CALLER:
        intended = intended_effect(message, message.call.principal, Mode.ACT)
        if held:
            _check_not_denied(decide(held.rules, intended))
        return False
    check_works(rules, run)
    if message.dispatched.permission == command_record_pb2.PERMISSION_DECISION:
        check_decider(rules, run, message)
        return True
    ruling = ruling_of(run.run, held, message, tool)
    if ruling.permission is Permission.LOOP and not _has_yolo(tx.connection, run):
        ruling = Ruling(RuleDecision(RuleVerdict.ASK))
    if not (run.active and ruling.verdict is RuleVerdict.ALLOW and _is_askers(rules, run, ruling, message)):
        text = f"{run.alias} does not accept such effects of {tool} without asking any more: propose this one."
        raise fault(Reason.GRANT_WITHDRAWN, text, run=run.alias, tool=tool)
    return True


def _upwards(connection: Connection, run: RunRow) -> Iterator[RunRow]:
    """The run, and those above it if they are wanted."""
    yield run
    yield from load_runs(connection, runs_above(connection, run.id))


def _has_yolo(connection: Connection, run: RunRow) -> bool:
    """Whether a loop with yolo may have it still: that of an agent, only while the one above it has it, too."""
    for one in _upwards(connection, run):
        if not yolo_of(one.run):
            return False
        if one.run.settings.yolo or one.loop_active != FIRST_LOOP:
            # A person has given it here: what is above has no say.
            return True
    return True


def _is_askers(rules: StoreRules, run: RunRow, ruling: Ruling, message: CommandRecord) -> bool:
    """Whether what allows an effect is for others than who asked for it to say, or that person may do such things."""
    rule = ruling.decision.rule
    return (rule is not None and rule.level is not RuleLevel.RUN) or may_affect(rules, run, message)


def check_acceptable(
    tx: Transaction, rules: StoreRules, run: RunRow, record: bytes, contents: Mapping[str, str]
) -> None:
    """Refuse to accept an effect that a rule denies, as proposed or with another command. Raises RULE_DENIED."""
    if held := rules_in(tx.connection, rules, run):
        message = CommandRecord.FromString(record)
        if message.proposed.effect.HasField("command") and "" in contents:
            message.proposed.effect.command.command = contents[""]
        _check_not_denied(ruling_of(run.run, held, message).decision)


def _check_not_denied(decision: RuleDecision) -> None:
    rule = decision.rule
    if rule and decision.verdict is RuleVerdict.DENY:
        level = _LEVELS[rule.level]
        message = f"A rule of the {level} denies this ({rule_words(rule)}): who may write rules there can change it."
        raise fault(Reason.RULE_DENIED, message, rule=rule.id, level=level)


def set_rules_like(
    tx: Transaction,
    rules: StoreRules,
    caller: Caller,
    address: RunRef,
    records: Mapping[str, CommandRecord],
    verdict: RuleVerdict,
) -> None:
    """Apply a decision on effects to later ones of their kind in the run. Raises INVALID_FIELD, LIMIT_EXCEEDED."""
    made = list[str]()
    for path, record in records.items():
        targets = targets_like(intended_effect(record))
        if targets is None and verdict is RuleVerdict.ALLOW:
            text = f"No rule allows effects like {path}, because what it runs is not read for certain: approve it once."
            raise invalid("scope", text)
        for target in targets or ():
            rule = set_rule(tx, rules, caller, address, Rule(verdict=verdict, tool=record.tool, target=target))
            made.append(rule_words(rule))
    tx.detail["rules"] = made
