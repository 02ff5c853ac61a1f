"""Approval rules in a file: TOML, a table `[[rule]]` for each, the last of those that match counts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct, ValidationError
from turnwright_values.types import Mode, Rule, RuleLevel, RuleVerdict

from turnwright_core.converters import converter
from turnwright_core.rules import RULES_MAX, TargetError, check_target

FILE_BYTES_MAX: Final = 1024 * 1024
"""Longest file, in bytes."""

_VERDICTS: Final = {"allow": RuleVerdict.ALLOW, "ask": RuleVerdict.ASK, "deny": RuleVerdict.DENY}
_MODES: Final = {"": Mode.UNSPECIFIED, "act": Mode.ACT, "ask": Mode.ASK}


class _FileRule(Struct, frozen=True, forbid_unknown_fields=True):
    verdict: str
    tool: str = ""
    target: str = ""
    principal: str = ""
    mode: str = ""
    network: bool = False


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    rule: tuple[_FileRule, ...] = ()


_file = converter(_File)

_FORM: Final = f"Each [[rule]] may have {', '.join(_FileRule.__struct_fields__)}"


class RulesFileError(ValueError):
    """A file of rules cannot be read; the message says why."""


class RulesFile(Struct, frozen=True):
    """The rules of a file, and a digest of what it says."""

    rules: tuple[Rule, ...] = ()
    version: str = ""


def read_rules(path: Path) -> RulesFile:
    """The rules of a deployment. Raises RulesFileError, which names the file."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise RulesFileError(f"{path} has more than {FILE_BYTES_MAX} bytes")
        rules = parse_rules(data.decode(), str(path))
    except OSError as error:
        raise RulesFileError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RulesFileError(f"{path} cannot be read as rules: {error}") from None
    return RulesFile(rules, hashlib.sha256(data).hexdigest()[:16] if rules else "")


def parse_rules(text: str, where: str) -> tuple[Rule, ...]:
    """The rules of a text in the form of the file. Raises RulesFileError, which names `where` it stands."""
    # Few processes have such a file.
    import tomllib  # noqa: PLC0415

    try:
        found = _file(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RulesFileError(f"{where} cannot be read as rules: {error}") from None
    except (ValidationError, DecodeError) as error:
        raise RulesFileError(f"{where} cannot be read as rules: {error}. {_FORM}") from None
    if len(found.rule) > RULES_MAX:
        raise RulesFileError(f"{where} has {len(found.rule)} rules; at most {RULES_MAX} are allowed")
    return tuple([_rule(one, f"rule {number} of {where}") for number, one in enumerate(found.rule, 1)])


def _rule(one: _FileRule, where: str) -> Rule:
    if one.verdict not in _VERDICTS:
        raise RulesFileError(f"{where}: verdict must be one of {', '.join(_VERDICTS)}; it is {one.verdict!r}")
    if one.mode not in _MODES:
        raise RulesFileError(f"{where}: mode must be act or ask; it is {one.mode!r}")
    if one.network and one.verdict != "allow":
        raise RulesFileError(f"{where}: network is for a rule that allows")
    try:
        check_target(one.tool, one.target)
    except TargetError as error:
        raise RulesFileError(f"{where}: target {one.target!r} cannot be used: {error}") from None
    lifts = RuleLevel.DEPLOYMENT if one.verdict == "allow" else RuleLevel.UNSPECIFIED
    return Rule(
        level=RuleLevel.DEPLOYMENT,
        verdict=_VERDICTS[one.verdict],
        tool=one.tool,
        target=one.target,
        principal=one.principal,
        mode=_MODES[one.mode],
        network=one.network,
        by="operator",
        lifts=lifts,
    )
