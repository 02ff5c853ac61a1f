"""`policy`: approval rules of a project or a run; what they say of a command, and of what runs have done.

`policy backtest` with voters replays the verdicts of stored turns, and shows where they would differ. Nothing is
written: the chain runs in this process, on what a watcher may read.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Final

from click import UsageError
from msgspec import Struct
from rich.text import Text
from turnwright.rules.v1 import rule_service_pb2
from turnwright.types.v1 import command_record_pb2, rule_pb2, settings_pb2
from turnwright_values.types import DecidingRule, Entry, Mode, Rule, RuleVerdict, Turn

from turnwright_cli.exit_codes import DIFFERENT, DONE, FAILED, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, answer, complain, console, enum_word, show_list, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.run_list import full_alias
from turnwright_cli.session import open_project, open_session
from turnwright_client import Client, RunView
from turnwright_core.json_text import JsonObject
from turnwright_core.rules import COMMAND_TOOLS, IntendedEffect, RuleDecision, decide, deciding, rule_words
from turnwright_core.rules_file import RulesFileError, read_rules
from turnwright_core.wire.codec import codec
from turnwright_core.wire.command_records import decision_in, recorded_effect
from turnwright_core.wire.entries import entry_from_pb
from turnwright_core.wire.runs import turn_from_pb
from turnwright_executor.clients.replaying import Replay, ReplayedVerdict
from turnwright_executor.config import ExecutorSettings
from turnwright_kit.settings import load

TURNS_MAX: Final = 1000
"""Maximum number of a run's latest turns that are replayed."""


async def try_voters(call: Invocation, *, hook: Sequence[str], run: Sequence[str]) -> int:
    """Try voters (`module:function`) over runs (`RUN`, `PROJECT/RUN`; none: every one of the project).

    The exit code says whether anything would differ. Raises SettingsError, UsageError.
    """
    # A voter is mostly tried where it is written, and a console script does not look there by itself.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    replay = Replay(load(ExecutorSettings), hook)
    async with open_session(call.settings) as session:
        async for project, name in named_runs(session.client, call, run):
            await replay.add_run(project, name, *await read_turns(session.client, project, name))
    _show(replay, as_json=call.as_json)
    failed = {(one.plugin, one.name): error for one, error in replay.failures}
    for (plugin, name), error in failed.items():
        complain(f"the voter {name} of {plugin} failed, and did not vote: {type(error).__name__}: {error}")
    if failed:
        return FAILED
    return DIFFERENT if any(one.differs for one in replay.verdicts) else DONE


async def named_runs(client: Client, call: Invocation, runs: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
    """The project and the alias of each run."""
    named = [name.partition("/") for name in runs]
    if any(separator and not (project and run) for project, separator, run in named):
        raise usage("--run: name a run as RUN, or as PROJECT/RUN.")
    own = ""
    if not named or not all(separator for _, separator, _ in named):
        own = (await client.init_project(call.root)).name
    for first, separator, second in named:
        yield (first, second) if separator else (own, first)
    if not named:
        async for run in client.list_runs(own):
            yield own, run.run


async def read_turns(client: Client, project: str, run: str) -> tuple[list[Turn], list[Entry]]:
    """A run's latest turns and its timeline, read as a watcher reads. Raises TurnwrightError."""
    turns = (await client.get_run(project, run, TURNS_MAX)).turns
    view = RunView()
    async with contextlib.aclosing(client.watch(project, run)) as events:
        async for event in events:
            view.apply(event)
            if view.run is not None:
                break
    return list(map(turn_from_pb, turns)), list(map(entry_from_pb, view.timeline()))


def _show(replay: Replay, *, as_json: bool) -> None:
    different = [one for one in replay.verdicts if one.differs]
    total, left_out = len(replay.verdicts), replay.incomplete
    runs = len({(one.stored.facts.at.project, one.stored.facts.at.run) for one in replay.verdicts})
    if as_json:
        for one in different:
            write_line(json.dumps(_verdict_dict(one)))
        counts = {"verdicts": total, "runs": runs, "different": len(different), "left_out": left_out}
        write_line(json.dumps(counts))
        return
    out = console()
    for one in different:
        at = one.stored.facts.at
        was, now = _verdict_words(one.stored.status, one.stored.reason), _verdict_words(one.status, one.reason)
        out.print(Text(f"{safe_line(at.run)} turn {at.turn}: {was} -> {now}"))
    out.print(Text(f"{len(different)} of {total} verdicts would differ, in {runs} runs."))
    if left_out:
        out.print(Text(f"{left_out} turns are left out: some of their records were removed."))


def _verdict_dict(one: ReplayedVerdict) -> JsonObject:
    at = one.stored.facts.at
    return {
        "project": at.project,
        "run": at.run,
        "loop": at.loop,
        "turn": at.turn,
        "was": {"status": one.stored.status, "reason": one.stored.reason},
        "would_be": {"status": one.status, "reason": one.reason},
    }


def _verdict_words(status: int, reason: str) -> str:
    return safe_line(f"{status} {reason or 'goes on'}")


MODES: Final = {"act": Mode.ACT, "ask": Mode.ASK}
VERDICTS: Final = ("allow", "ask", "deny")


def _conditions(rule: rule_pb2.Rule) -> str:
    modes = [word for word, number in MODES.items() if int(number) == rule.mode]
    return " ".join(filter(None, (rule.principal, *modes, "network" * rule.network)))


_COLUMNS: Final[Sequence[Column[rule_pb2.Rule]]] = (
    Column("rule", lambda rule: str(rule.id or "file")),
    Column("level", lambda rule: enum_word(rule_pb2.RuleLevel.DESCRIPTOR, rule.level)),
    Column("verdict", lambda rule: enum_word(rule_pb2.RuleVerdict.DESCRIPTOR, rule.verdict), decides=True),
    Column("tool", lambda rule: rule.tool or "every tool", decides=True),
    Column("target", lambda rule: rule.target or "whatever it does", decides=True),
    Column("for", _conditions),
    Column("by", lambda rule: rule.by),
)
_rule_from_pb = codec(Rule, rule_pb2.Rule)[1]
_deciding_from_pb = codec(DecidingRule, rule_pb2.DecidingRule)[1]


async def list_rules(call: Invocation, *, run: str | None) -> int:
    async with open_project(call) as (client, project):
        alias = await full_alias(client, project, run) if run else ""
        rules = await client.list_rules(project, alias)
    hint = "The last rule of a level that matches counts; a deny is final."
    if _denies_all(rules):
        hint = "These rules deny everything: no command runs, and no file changes."
    return show_list(call, rules, _COLUMNS, empty="There is no rule: a person is asked.", hint=hint)


def _denies_all(rules: Iterable[rule_pb2.Rule]) -> bool:
    kinds = [
        IntendedEffect("sh", "true"),
        IntendedEffect("set", places=("a",)),
        IntendedEffect("get", places=("https://a.org",)),
    ]
    values = list(map(_rule_from_pb, rules))
    return all(decide(values, one).verdict is RuleVerdict.DENY for one in kinds)


async def set_rule(
    call: Invocation,
    *,
    verdict: str,
    target: str,
    tool: str,
    run: str | None,
    principal: str,
    mode: str | None,
    network: bool,
) -> int:
    rule = rule_pb2.Rule(
        verdict=rule_pb2.RuleVerdict.Value(f"RULE_VERDICT_{verdict.upper()}"),
        tool=tool,
        target=target,
        principal=principal,
        mode=settings_pb2.Mode.ValueType(MODES[mode]) if mode else settings_pb2.MODE_UNSPECIFIED,
        network=network,
    )
    async with open_project(call) as (client, project):
        alias = await full_alias(client, project, run) if run else ""
        made = await client.set_rule(project, rule, alias)
    return answer(call, [made], f"Rule {made.id} of {safe_line(alias or project)}: {safe_line(_words(made))}.")


def _words(rule: rule_pb2.Rule) -> str:
    return rule_words(_rule_from_pb(rule))


async def remove_rule(call: Invocation, *, rule: int, run: str | None) -> int:
    async with open_project(call) as (client, project):
        alias = await full_alias(client, project, run) if run else ""
        await client.delete_rule(project, rule, alias)
    return answer(call, [], f"Rule {rule} is gone.")


async def try_rules(
    call: Invocation, *, target: str, tool: str, run: str | None, principal: str, mode: str, rules: Path | None
) -> int:
    """What the rules say of a command line, a path or an address."""
    is_line = tool in COMMAND_TOOLS
    if rules:
        line, places = (target, ()) if is_line else (None, (target,))
        made = decide(_rules_in(rules), IntendedEffect(tool, line, places, principal, MODES[mode]))
        verdict, rule = made.verdict, deciding(made.rule) if made.rule else None
    else:
        asked = rule_service_pb2.TestedEffect(
            tool=tool, principal=principal, mode=settings_pb2.Mode.ValueType(MODES[mode])
        )
        setattr(asked, "line" if is_line else "place", target)
        async with open_project(call) as (client, project):
            alias = await full_alias(client, project, run) if run else ""
            (found,) = await client.test_rules(project, [asked], alias)
        verdict = RuleVerdict(found.verdict)
        rule = _deciding_from_pb(found.rule) if found.HasField("rule") else None
    if call.as_json:
        write_line(json.dumps({"verdict": verdict.name.lower(), "rule": _as_dict(rule)}))
    else:
        write_line(f"{verdict.name.lower()}: {safe_line(_because(rule))}")
    return DONE


def _rules_in(file: Path) -> list[Rule]:
    try:
        return list(read_rules(file).rules)
    except RulesFileError as error:
        raise usage(f"--rules: {error}.") from None


def _as_dict(rule: Rule | DecidingRule | None) -> dict[str, object] | None:
    if rule is None:
        return None
    return {"id": rule.id, "level": rule.level.name.lower(), "tool": rule.tool, "target": rule.target}


def _because(rule: Rule | DecidingRule | None) -> str:
    if rule is None:
        return "no rule matches"
    named = f"rule {rule.id} of the {rule.level.name.lower()}" if rule.id else "a rule of the file"
    return f"{named} ({rule_words(rule)})"


class _Past(Struct, frozen=True):
    """What became of a command, and what the rules say of it."""

    project: str
    entry: Entry
    was: str
    by: str
    decision: RuleDecision
    what: str

    @property
    def would_be(self) -> str:
        return self.decision.verdict.name.lower()

    @property
    def differs(self) -> bool:
        """Whether the rules would have decided otherwise, where they decide."""
        return self.decision.verdict is (RuleVerdict.ALLOW if self.was == "rejected" else RuleVerdict.DENY)


async def backtest(
    call: Invocation, *, hook: Sequence[str], verdicts: bool, rules: Path | None, run: Sequence[str], every: bool
) -> int:
    """What the rules of a file, or those that hold now, say of the effects of stored runs; or what voters say.

    The exit code says whether anything would differ. Raises FailureError, UsageError.
    """
    if every == bool(run):
        raise UsageError("Say --run RUN, or --all.")
    if rules and (hook or verdicts):
        raise UsageError("--rules is about effects, --hook and --verdicts are about verdicts: say one of them.")
    if hook or verdicts:
        return await try_voters(call, hook=hook, run=run)
    own = _rules_in(rules) if rules else None
    past: list[_Past] = []
    async with open_session(call.settings) as session:
        async for project, name in named_runs(session.client, call, run):
            held = own if own is not None else map(_rule_from_pb, await session.client.list_rules(project, name))
            held = list(held)
            _, entries = await read_turns(session.client, project, name)
            past += [one for entry in entries if (one := _judged(project, entry, held))]
    different = [one for one in past if one.differs]
    counts = {word: sum(one.would_be == word for one in past) for word in VERDICTS}
    if call.as_json:
        for one in different:
            at = {"project": one.project, "path": one.entry.path, "was": one.was, "by": one.by}
            write_line(json.dumps({**at, "would_be": one.would_be, "rule": _as_dict(one.decision.rule)}))
        write_line(json.dumps({"effects": len(past), "different": len(different), **counts}))
        return DIFFERENT if different else DONE
    for one in different:
        by = f" by {one.by}" if one.by else ""
        write_line(safe_line(f"{one.what}: {one.was}{by} -> {one.would_be}, {_because(one.decision.rule)}"))
    summed = ", ".join(f"{count} {word}" for word, count in counts.items())
    write_line(f"{len(different)} of {len(past)} effects would have been decided otherwise ({summed}).")
    return DIFFERENT if different else DONE


_WAS: Final = {
    command_record_pb2.DECISION_KIND_ACCEPTED: "accepted",
    command_record_pb2.DECISION_KIND_REJECTED: "rejected",
    command_record_pb2.DECISION_KIND_EXPIRED: "expired",
}


def _judged(project: str, entry: Entry, rules: Sequence[Rule]) -> _Past | None:
    """None for what is no effect, or has not ended."""
    if not (entry.record and entry.state.is_settled):
        return None
    record = command_record_pb2.CommandRecord.FromString(entry.record)
    made = decision_in(entry.record)
    is_effect = record.effect_class == command_record_pb2.EFFECT_CLASS_OUTSIDE or record.settled.files
    if not (made or is_effect or record.HasField("rule")):
        return None
    intended = recorded_effect(record, str(entry.attributes.get("target", "")), mode=Mode.ACT)
    denied = record.rule.verdict == rule_pb2.RULE_VERDICT_DENY
    was = _WAS[int(made.kind)] if made else "rejected" if denied else "not asked"  # type: ignore[index]
    what = intended.line or " ".join(intended.places)
    return _Past(project, entry, was, made.principal if made else "", decide(rules, intended), f"{record.tool} {what}")
