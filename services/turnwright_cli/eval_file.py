"""The file of `eval`: variants and tasks, read and checked as a whole before anything runs."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from msgspec import Meta, Struct, ValidationError

from turnwright_cli.exit_codes import FailureError, usage
from turnwright_cli.plain import safe_line
from turnwright_cli.reading import text_in
from turnwright_core.converters import converter
from turnwright_core.limits import SPAN_S_MAX
from turnwright_core.suggestions import did_you_mean

BYTES_MAX: Final = 1024 * 1024
ENTRIES_MAX: Final = 1_000
"""Variants, and tasks, of one file."""
CHECK_S: Final = 60.0
"""Seconds that a check may take whose task does not say."""
LIMITS: Final = ("max_turns", "max_tokens", "max_cost", "max_seconds")

Name = Annotated[str, Meta(min_length=1, max_length=100)]
Seconds = Annotated[float, Meta(gt=0, le=SPAN_S_MAX)]


class Variant(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One way to run the tasks. What it leaves out is as [defaults] say, then as for `turnwright act`."""

    name: Name
    assembly: Literal["packet", "transcript"] | None = None
    calls: Literal["tags", "native", "auto"] | None = None
    model: str = ""
    reasoning: str | None = None
    max_turns: Annotated[int, Meta(ge=0, lt=2**32)] | None = None
    max_tokens: Annotated[int, Meta(ge=0, lt=2**53)] | None = None
    max_cost: Annotated[float, Meta(ge=0)] | None = None
    max_seconds: Annotated[float, Meta(ge=0, le=SPAN_S_MAX)] | None = None


class EvalTask(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A project, what is asked for, and the command that decides whether it was done: by exit code 0."""

    name: Name
    project: str
    """Folder, relative to the file."""
    prompt: Annotated[str, Meta(min_length=1)]
    check: Annotated[str, Meta(min_length=1)]
    check_seconds: Seconds = CHECK_S


class EvalFile(Struct, frozen=True):
    """What `eval` runs: each task with each variant."""

    folder: Path
    variants: tuple[Variant, ...]
    tasks: tuple[EvalTask, ...]

    def source_of(self, task: EvalTask) -> Path:
        return self.folder / task.project


E = TypeVar("E", Variant, EvalTask)


class _Kind(Struct, Generic[E], frozen=True):
    """An array of tables of the file."""

    key: str
    kind: type[E]


_VARIANTS: Final = _Kind("variant", Variant)
_TASKS: Final = _Kind("task", EvalTask)
_CONVERTERS: Final = {"variant": converter(Variant), "task": converter(EvalTask)}
_TABLES: Final = ("defaults", "variant", "task")


def read_eval_file(file: Path, only: Collection[str] = ()) -> EvalFile:
    """The file, with the tasks and variants that `only` names, if it names any. Raises FailureError."""
    text = text_in(file, "file", BYTES_MAX)
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # It names line and column.
        raise usage(f"{file} is not TOML: {error}.") from None
    if unknown := sorted(found.keys() - set(_TABLES)):
        near = did_you_mean(unknown[0], _TABLES)
        raise usage(f"{file}: there is no {safe_line(unknown[0])}{near}; known are {', '.join(_TABLES)}.")
    defaults = _defaults(file, found.get("defaults", {}))
    variants = _entries(file, _VARIANTS, found.get("variant", []), defaults)
    for one in variants:
        if one.assembly == "transcript" and one.calls == "tags":
            # It would only measure `native` a second time.
            raise usage(f"{file}: [[variant]] {safe_line(one.name)}: calls: a transcript has native calls, not tags.")
    tasks = _entries(file, _TASKS, found.get("task", []), defaults)
    read = EvalFile(file.parent, *_chosen(file, variants, tasks, only))
    for task in read.tasks:
        if not read.source_of(task).is_dir():
            raise usage(
                f"{file}: [[task]] {safe_line(task.name)}: project: {safe_line(str(read.source_of(task)))} is not a "
                "folder. It is relative to the file."
            )
    return read


def _defaults(file: Path, table: Any) -> Mapping[str, Any]:
    known = {*Variant.__struct_fields__, *EvalTask.__struct_fields__} - {"name", "project", "prompt"}
    if not isinstance(table, dict):
        raise usage(f"{file}: defaults is a table, [defaults].")
    for key in table.keys() - known:
        raise usage(f"{file}: [defaults]: there is no {safe_line(key)}{did_you_mean(key, known)}.")
    return table


def _entries(file: Path, kind: _Kind[E], tables: Any, defaults: Mapping[str, Any]) -> tuple[E, ...]:
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise usage(f"{file}: {kind.key} is an array of tables, [[{kind.key}]].")
    if not 0 < len(tables) <= ENTRIES_MAX:
        raise usage(f"{file} has {len(tables)} tables [[{kind.key}]]; it needs at least 1, and at most {ENTRIES_MAX}.")
    read: dict[str, E] = {}
    for number, table in enumerate(tables, 1):
        entry = _entry(kind, {**_for(kind, defaults), **table}, f"{file}: [[{kind.key}]] {number}")
        if entry.name in read:
            raise usage(f"{file}: [[{kind.key}]] {number}: there is another one with the name {safe_line(entry.name)}.")
        read[entry.name] = entry
    return tuple(read.values())


def _for(kind: _Kind[E], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in defaults.items() if key in kind.kind.__struct_fields__}


def _entry(kind: _Kind[E], table: Mapping[str, Any], where: str) -> E:
    name = table.get("name")
    if isinstance(name, str):
        where = f"{where} ({safe_line(name, 40)})"
    known = kind.kind.__struct_fields__
    for key in table.keys() - set(known):
        raise usage(f"{where}: there is no {safe_line(key)}{did_you_mean(key, known)}; known are {', '.join(known)}.")
    try:
        return _CONVERTERS[kind.key](table)  # type: ignore[return-value] # the converter of this kind
    except ValidationError as error:
        raise _wrong(where, error) from None


def _wrong(where: str, error: ValidationError) -> FailureError:
    """What msgspec says, with its path `$.max_turns` as the name of a key."""
    sentence, _, path = str(error).partition(" - at `$.")
    return usage(f"{where}: {path.rstrip('`')}: {sentence}." if path else f"{where}: {sentence}.")


def _chosen(
    file: Path, variants: Sequence[Variant], tasks: Sequence[EvalTask], only: Collection[str]
) -> tuple[tuple[Variant, ...], tuple[EvalTask, ...]]:
    """The entries that are named; of a kind of which none is named, all."""
    names = [*(one.name for one in variants), *(one.name for one in tasks)]
    for wanted in only:
        if wanted not in names:
            near = did_you_mean(wanted, names)
            raise usage(f"{file} has no task or variant {safe_line(wanted)}{near}. --only names one of them.")
    some_variants = tuple(one for one in variants if one.name in only)
    some_tasks = tuple(one for one in tasks if one.name in only)
    return some_variants or tuple(variants), some_tasks or tuple(tasks)
