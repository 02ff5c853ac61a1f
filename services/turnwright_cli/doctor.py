"""`doctor`: what is configured, what answers, which model could be called, and what to do about the rest."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Final

from rich.console import Console
from rich.text import Text
from turnwright.executor.v1 import query_pb2

from turnwright_cli.config import CliSettings
from turnwright_cli.exits import FAILED, FailureError, failure_of
from turnwright_cli.json_lines import to_line
from turnwright_cli.lists import context_words
from turnwright_cli.output import console, put, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.session import LOG_FILE, open_session
from turnwright_cli.stack import START_ORDER, settings_class
from turnwright_core.errors import TurnwrightError
from turnwright_core.kit.settings import PREFIX, Settings, load
from turnwright_store.config import CONTEXT_PREFIX, MODEL_PREFIX

_SECRET_NAMES: Final = re.compile(r"token|key|secret|password", re.IGNORECASE)
_URL: Final = re.compile(r"://(?P<user>\S*@)?(?P<place>[^\s?#]*)(?P<query>[?#]\S*)?")
CONFINEMENT: Final = {
    "limits": "commands run under limits only (time, output, memory, processes); there is no sandbox",
    "bubblewrap": "commands run under bubblewrap and limits: they write the project only, and with <env> nothing",
}


async def doctor(settings: CliSettings, *, as_json: bool) -> int:
    """Print how things are. Returns 0 when every service serves, else 5."""
    try:
        async with open_session(settings) as session:
            status = await session.client.get_status(check_models=True, timeout_s=settings.doctor_timeout_s)
            for service in status.services:
                # An executor does not know a port that its system chose; we have just called it.
                service.address = service.address or session.client.address
            contexts = {model.alias: context_words(model) for model in await session.client.list_models()}
    except TurnwrightError as error:
        _own(console(), settings)
        raise failure_of(error) from None
    except FailureError:
        _own(console(), settings)
        raise
    if as_json:
        write_line(to_line(status))
    else:
        out = console()
        _own(out, settings)
        for line in _status_lines(status, contexts):
            put(out, line)
    return 0 if all(service.serving for service in status.services) else FAILED


def _own(out: Console, settings: CliSettings) -> None:
    """What this command knows without asking anybody."""
    put(out, Text(f"turnwright {version('turnwright')}"))
    put(out, Text(f"home: {settings.home} (log: {settings.home / LOG_FILE})"))
    changed = dict(settings_in_force())
    put(out, Text("settings in force:" if changed else "settings: all at their defaults"))
    for name, value in sorted(changed.items()):
        put(out, Text(f"  {name}={safe_line(value)}"))
    for name in unknown_variables(os.environ):
        put(out, Text(f"no setting is called {safe_line(name)}{_meant(name)}", style="yellow"))


def settings_in_force() -> Iterator[tuple[str, str]]:
    """Every setting that is not at its default, by its variable, without secrets."""
    kinds: list[type[Settings]] = [*(settings_class(name) for name in START_ORDER), CliSettings]
    for kind in kinds:
        settings: Settings = load(kind)
        for name, field in kind.fields.items():
            value = getattr(settings, name)
            if value != field.get_default():
                yield field.variables[0], shown_value(name, value, is_repr=field.repr)


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Variables that look like settings and are none, which nobody reads."""
    known = _setting_names()
    return sorted(
        name
        for name in environment
        if name.startswith(PREFIX) and name not in known and not name.startswith((MODEL_PREFIX, CONTEXT_PREFIX))
    )


def _setting_names() -> frozenset[str]:
    kinds: list[type[Settings]] = [*(settings_class(name) for name in START_ORDER), CliSettings]
    return frozenset(variable for kind in kinds for field in kind.fields.values() for variable in field.variables)


def _meant(name: str) -> str:
    close = difflib.get_close_matches(name, _setting_names(), 1, 0.8)
    return f"; was {close[0]} meant?" if close else ""


def shown_value(name: str, value: object, *, is_repr: bool) -> str:
    """A value as it may be shown: secrets are only said to be set, and a URL loses its user, password and query."""
    if not is_repr or _SECRET_NAMES.search(name):
        return "(set)" if value else "(not set)"
    return _URL.sub(_without_secrets, str(value))


def _without_secrets(url: re.Match[str]) -> str:
    return f"://{'***@' if url['user'] else ''}{url['place']}{'?***' if url['query'] else ''}"


def _status_lines(status: query_pb2.GetStatusResponse, contexts: dict[str, str]) -> Iterator[Text]:
    yield Text("services:")
    for service in status.services:
        words = f"serves at {service.address}" if service.serving else f"{service.address}: {service.problem}"
        yield _line(service.name, words, good=service.serving)
    yield Text("vendors:")
    for vendor in status.vendors:
        yield _line(vendor.name, vendor.endpoint if vendor.configured else vendor.problem, good=vendor.configured)
    yield Text("models:" if status.models else "models: none; add one with TURNWRIGHT_MODEL_<alias>=<vendor>/<model>")
    for model in status.models:
        words = f"usable, context {contexts.get(model.alias, 'unknown')}" if model.usable else model.problem
        yield _line(model.alias, words, good=model.usable)
    yield Text(f"confinement: {CONFINEMENT.get(status.confinement, safe_line(status.confinement))}")


def _line(name: str, words: str, *, good: bool) -> Text:
    return Text.assemble("  ", (safe_line(name), "bold"), ": ", (safe_line(words), "green" if good else "yellow"))
