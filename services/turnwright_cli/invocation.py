"""What holds for all commands: options, then variables, then the person's `turnwright.toml`, then defaults.

A project's `turnwright.toml` has a table [task] alone, so that a cloned repository cannot loosen your settings.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, ValidationError
from turnwright.types.v1 import budget_pb2, settings_pb2

from turnwright_cli.exit_codes import usage
from turnwright_cli.plain import is_utf8
from turnwright_core.converters import converter
from turnwright_core.limits import SPAN_S_MAX
from turnwright_core.suggestions import did_you_mean
from turnwright_core.text import host_and_path
from turnwright_core.wire.times import seconds_to_pb
from turnwright_kit.settings import PREFIX, Settings, SettingsError, load, setting


class Invocation:
    """The shared options. Settings are read when first needed."""

    SHARED: Final = ("project", "as_json", "server")

    def __init__(self, project: str | None = None, server: str | None = None, as_json: bool | None = None) -> None:
        """Options that were not given are taken from the environment."""
        self.as_json = bool(as_json)
        """Whether standard output is JSON, one message per line."""
        self._project = project
        self._server = server

    @cached_property
    def settings(self) -> CliSettings:
        """From options, variables, and the person's file, in this order. Raises SettingsError."""
        apply_file(config_file(), os.environ)
        return load(CliSettings, server=self._server)

    @cached_property
    def defaults(self) -> TaskDefaults:
        """What tasks get that options leave open. Raises SettingsError."""
        return task_defaults(None if self.settings.server else Path(self.root))

    @cached_property
    def root(self) -> str:
        """The project's absolute path, or its place on a sandbox host.

        Raises FailureError if it is not a directory here, unless a server is used.
        """
        named = self._project or self.settings.project or "."
        if host_and_path(named)[0]:
            return named
        path = Path(named).expanduser().absolute()
        if not self.settings.server and not path.is_dir():
            raise usage(f"{named!r} is not a directory. Name an existing one with --project.")
        root = str(path if self.settings.server else path.resolve())
        if not is_utf8(root):
            raise usage(f"{root!r} is not a name in UTF-8. Name another directory with --project.")
        return root


_LIMITS: Final = {
    "max_turns": "turns_max",
    "max_tokens": "tokens_max",
    "max_cost": "cost_usd_max",
    "max_seconds": "wall_max",
}
"""Options -> fields of a budget."""


def budget_of(**limits: Any) -> budget_pb2.Budget | None:
    """The limits that were given; None if none were."""
    given = {_LIMITS[name]: limit for name, limit in limits.items() if limit is not None}
    if not given:
        return None
    return budget_pb2.Budget(**{**given, "wall_max": seconds_to_pb(given.get("wall_max", 0.0))})


def call_style(word: str | None) -> settings_pb2.CallStyle.ValueType | None:
    """The value of --calls; None where it was not given."""
    return settings_pb2.CallStyle.Value(f"CALL_STYLE_{word.upper()}") if word else None


TABLES: Final = {"models": f"{PREFIX}MODEL_", "context": f"{PREFIX}CONTEXT_", "price": f"{PREFIX}PRICE_"}
"""Tables of `turnwright.toml`, and how the variables of their models begin."""
_SECRET: Final = ("_api_key", "token")
NAME: Final = "turnwright.toml"
_BYTES_MAX: Final = 64 * 1024


class TaskDefaults(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `act`, `ask` and sessions, for tasks that are given without them."""

    model: str | None = None
    """Of new runs."""
    reasoning: str | None = None
    max_turns: Annotated[int, Meta(ge=0, lt=2**32)] | None = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    max_cost: Annotated[float, Meta(ge=0)] | None = None
    max_seconds: Annotated[float, Meta(ge=0, le=SPAN_S_MAX)] | None = None

    def limits(self, **given: object) -> dict[str, object]:
        return {name: getattr(self, name) if given.get(name) is None else given[name] for name in _LIMITS}


_DEFAULTS: Final = converter(TaskDefaults)


def config_file() -> Path:
    """`$XDG_CONFIG_HOME/turnwright/turnwright.toml`, else `~/.config/turnwright/turnwright.toml`."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "turnwright" / NAME


def apply_file(file: Path, environment: MutableMapping[str, str]) -> None:
    """Set what the file says and the environment does not. Raises SettingsError if the file cannot be used."""
    variables = dict(_variables(file, _read(file)))
    if wrong := list(_wrong(variables)):
        raise SettingsError("\n".join(f"{file}: {one}" for one in wrong))
    if any(name.lower().endswith(_SECRET) for name in variables) and stat.S_IMODE(file.stat().st_mode) & 0o077:
        raise SettingsError(f"{file} holds a secret, and others may read it: run `chmod 600 {file}`.")
    for name, value in variables.items():
        environment.setdefault(name, value)


def _wrong(variables: Mapping[str, str]) -> Iterator[str]:
    """Sentences on keys that are no settings, and on values that settings do not take."""
    from turnwright_cli.stack import setting_fields

    fields = setting_fields(CliSettings) if variables else {}
    for name, value in variables.items():
        key = name.removeprefix(PREFIX).lower()
        if name in fields:
            try:
                fields[name].read(value)
            except ValueError as error:
                yield f"{key} {error}{f' (it is {value!r})' if fields[name].repr else ''}."
        elif not name.startswith(tuple(TABLES.values())):
            near = did_you_mean(key, (one.removeprefix(PREFIX).lower() for one in fields))
            yield f"there is no setting {key}{near}; docs/settings.md lists them."


def task_defaults(project: Path | None) -> TaskDefaults:
    """What the files of a project's folder and of the person say of tasks. Raises SettingsError."""
    given = _task_table(file := config_file(), _read(file))
    if project:
        found = _read(file := project / NAME)
        given |= _task_table(file, found)
        if others := sorted(found.keys() - {"task"}):
            raise SettingsError(
                f"{file}: a project's file has a table [task] alone, no {others[0]}. "
                f"Settings are for those who run the commands: write it into {config_file()}."
            )
        if "/" in str(found.get("task", {}).get("model", "")):
            raise SettingsError(f"{file}: a project names a model by its alias; which vendor it calls is up to you.")
    return TaskDefaults(**given)


def _task_table(file: Path, found: Mapping[str, Any]) -> dict[str, Any]:
    table = found.get("task", {})
    try:
        _DEFAULTS(table)
    except ValidationError as error:
        known = ", ".join(TaskDefaults.__struct_fields__)
        raise SettingsError(f"{file}: [task]: {error}; known are {known}.") from None
    return dict(table)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        with file.open("rb") as opened:
            text = opened.read(_BYTES_MAX + 1).decode()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from None
    if len(text) > _BYTES_MAX:
        raise SettingsError(f"{file} has more than {_BYTES_MAX} bytes.")
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file} is not TOML: {error}") from None


def _variables(file: Path, found: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for key, value in found.items():
        if key == "task":
            continue
        if isinstance(value, Mapping):
            if key not in TABLES:
                known = ", ".join(f"[{name}]" for name in (*TABLES, "task"))
                raise SettingsError(f"{file}: there is no table [{key}]; known are {known}.")
            for alias, one in value.items():
                yield f"{TABLES[key]}{alias}", _text(file, f"{key}.{alias}", one)
        else:
            yield f"{PREFIX}{key.upper()}", _text(file, key, value)


def _text(file: Path, key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise SettingsError(f"{file}: {key} must be a text, a number, true or false.")


CHECK_MODELS_TIMEOUT_S: Final = 60.0
"""Deadline for checking all models with their vendors, in seconds."""


class CliSettings(Settings):
    """Settings of the command line."""

    server: str = setting(
        "Address of the executor to use. Empty: the running stack of this home, or an embedded one.", ""
    )
    rpc_timeout_s: float = setting("Deadline of a short call to another service, in seconds.", 30.0, gt=0, le=3600)
    project: str = setting("Project directory. Empty: the current directory.", "")
    run: str = setting("Alias of the run that `act` and `ask` continue or create.", "")
    only: str = setting("Services that `serve` runs, separated by commas. Empty: all four.", "")
