"""`doctor`: what is configured, which services and models answer, and how to fix the rest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Final

from rich.console import Console
from rich.text import Text
from turnwright.executor.v1 import query_pb2, tools_pb2

from turnwright_cli.discovery import CHECK_S, read_record, readiness
from turnwright_cli.exit_codes import FAILED, FailureError, failure_of
from turnwright_cli.invocation import CHECK_MODELS_TIMEOUT_S, CliSettings, Invocation
from turnwright_cli.models import context_words
from turnwright_cli.output import console, put, show_lines
from turnwright_cli.plain import safe_line
from turnwright_cli.session import LOG_FILE, differing_variables, open_session, service_word, unknown_variables
from turnwright_cli.stack import START_ORDER, settings_class
from turnwright_cli.tools import server_lines
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_kit.settings import Settings, load
from turnwright_kit.settings_report import settings_in_force

CONFINEMENT: Final = {
    query_pb2.CONFINEMENT_NONE: (
        "commands do not run, because nothing confines them here: install bubblewrap, use Linux 6.12 or later with "
        "Landlock, or set TURNWRIGHT_SH_SANDBOX=limits"
    ),
    query_pb2.CONFINEMENT_LIMITS: "commands are limited in time, output, memory and processes, but not sandboxed",
    query_pb2.CONFINEMENT_BUBBLEWRAP: (
        "commands run in bubblewrap, with limits: <sh> can write only to the project, <env> to nothing"
    ),
    query_pb2.CONFINEMENT_LANDLOCK: (
        "commands run under Landlock and seccomp, with limits: <sh> can write only to the project, <env> to nothing"
    ),
}

_NO_MODELS: Final = "models: none; add one with `turnwright models add ALIAS VENDOR/MODEL`, or name any as vendor/model"


_NOT_ASKED: Final = (
    "not asked: vendors, models, confinement, settings of other services. A client's token is needed for that: make "
    "one where the deployment's secret is, with `turnwright token create --principal NAME`; set TURNWRIGHT_TOKEN to "
    "it, and name an executor with --server."
)


_REFUSED: Final = (Reason.UNAUTHENTICATED, Reason.RIGHT_MISSING)
"""What a caller is told who has no token, or the secret of a home that no other service knows."""


async def doctor(call: Invocation) -> int:
    settings = call.settings
    alone = {} if settings.server else await _alone(settings)
    if alone and "executor" not in alone:
        # Without an executor there is nobody to ask, and one that we started would work on runs.
        return _show_alone(call, alone)
    try:
        async with open_session(settings) as session:
            status = await session.client.get_status(check_models=True, timeout_s=CHECK_MODELS_TIMEOUT_S)
            for service in status.services:
                # An executor on a port chosen by the system does not know its address; we have just called it.
                service.address = service.address or session.client.address
            servers = {one.name: one for one in (*status.tool_servers, *await _registered(call, session.client))}
            contexts = {model.alias: context_words(model) for model in await session.client.list_models()}
    except (TurnwrightError, FailureError) as error:
        has_no_token = not settings.token and isinstance(error, TurnwrightError) and error.reason in _REFUSED
        if alone and has_no_token:
            return _show_alone(call, alone)
        out = console()
        _own(out, settings)
        own = {line for name in START_ORDER for line in _lines(load(settings_class(name)))}
        _show_settings(out, "settings of this terminal; no service answered", own)
        raise (failure_of(error) if isinstance(error, TurnwrightError) else error) from None
    del status.tool_servers[:]
    status.tool_servers.extend(servers.values())
    if call.as_json:
        show_lines([status])
    else:
        out = console()
        _own(out, settings)
        _show_settings(out, "settings in force", _reported_settings(status))
        ignored, theirs = differing_variables(status) if session.attached else ([], [])
        if ignored:
            put(out, Text(f"the running services use other values for: {', '.join(ignored)}", style="yellow"))
        if theirs:
            put(out, Text(f"set only where the services run: {', '.join(theirs)}"))
        for line in _status_lines(status, contexts):
            put(out, line)
    return 0 if all(service.serving for service in status.services) else FAILED


async def _registered(call: Invocation, client: Client) -> Sequence[tools_pb2.ToolServerState]:
    """The servers of tools that the project here gets, which `GetStatus` knows no project to ask for."""
    try:
        project = await client.find_project(call.root)
        if project is None:
            return ()
        return (await client.list_tools(project.name, check=True, timeout_s=CHECK_MODELS_TIMEOUT_S)).servers
    except (TurnwrightError, FailureError):
        # `turnwright tools check` says why, and the rest is known all the same.
        return ()


async def _alone(settings: CliSettings) -> dict[str, query_pb2.ServiceStatus]:
    """What the process that serves some of the services here says of them and of those that they call.

    Empty if it serves all of them, or nothing does.
    """
    record = read_record(settings.home)
    found: dict[str, query_pb2.ServiceStatus] = {}
    if record is None or record.services.keys() >= set(START_ORDER):
        return found
    for name, address in record.services.items():
        ready = await readiness(address, CHECK_S, settings.tls)
        if ready:
            # Its own is the one without a name.
            ready[name] = ready[""]
        for other in sorted(ready.keys() & set(START_ORDER) - found.keys(), key=START_ORDER.index):
            number = query_pb2.ServiceName.Value(f"SERVICE_NAME_{other.upper()}")
            at = address if other == name else f"the address that the {name} calls"
            problem = "" if ready[other] else "not ready"
            found[other] = query_pb2.ServiceStatus(name=number, address=at, serving=ready[other], problem=problem)
    return found


def _show_alone(call: Invocation, found: Mapping[str, query_pb2.ServiceStatus]) -> int:
    services = list(found.values())
    if call.as_json:
        show_lines([query_pb2.GetStatusResponse(services=services)])
    else:
        out = console()
        _own(out, call.settings)
        _show_settings(out, "settings here", {line for name in found for line in _lines(load(settings_class(name)))})
        for line in _service_lines(services):
            put(out, line)
        put(out, Text(_NOT_ASKED))
    return 0 if all(service.serving for service in services) else FAILED


def _reported_settings(status: query_pb2.GetStatusResponse) -> Iterator[str]:
    """Settings reported by the services; one that differs between services is listed with the service's name."""
    services_by_setting: dict[tuple[str, str], list[str]] = {}
    for service in status.services:
        for one in service.settings:
            services_by_setting.setdefault((one.variable, one.value), []).append(service_word(service))
    several = {name for name, count in Counter(name for name, _ in services_by_setting).items() if count > 1}
    for (name, value), services in services_by_setting.items():
        where = f" ({', '.join(services)})" if name in several else ""
        yield f"{safe_line(name)}={safe_line(value)}{where}"


def _own(out: Console, settings: CliSettings) -> None:
    put(out, Text(f"turnwright {version('turnwright')}"))
    put(out, Text(f"home: {settings.home} (log: {settings.home / LOG_FILE})"))
    own = {field.variables[0] for name, field in CliSettings.fields.items() if name not in Settings.fields}
    if lines := [line for line in _lines(settings) if line.partition("=")[0] in own]:
        _show_settings(out, "settings of this command", lines)
    for sentence in unknown_variables(os.environ):
        put(out, Text(sentence, style="yellow"))


def _show_settings(out: Console, title: str, lines: Iterable[str]) -> None:
    shown = sorted(lines)
    put(out, Text(f"{title}:" if shown else f"{title}: all at their defaults"))
    for line in shown:
        put(out, Text(f"  {line}"))


def _lines(settings: Settings) -> list[str]:
    return [f"{safe_line(one.variable)}={safe_line(one.value)}" for one in settings_in_force(settings)]


def _service_lines(services: Iterable[query_pb2.ServiceStatus]) -> Iterator[Text]:
    yield Text("services:")
    for service in services:
        words = f"serves at {service.address}" if service.serving else f"{service.address}: {service.problem}"
        yield _line(service_word(service), words, good=service.serving)


def _status_lines(status: query_pb2.GetStatusResponse, contexts: dict[str, str]) -> Iterator[Text]:
    yield from _service_lines(status.services)
    yield Text("vendors:")
    for vendor in status.vendors:
        if vendor.unset:
            continue
        yield _line(vendor.name, vendor.endpoint if vendor.configured else vendor.problem, good=vendor.configured)
    if unset := ", ".join(safe_line(vendor.name) for vendor in status.vendors if vendor.unset):
        yield Text(f"  not set up: {unset} (each needs <NAME>_API_KEY or <NAME>_BASE_URL where the provider runs)")
    yield Text("models:" if status.models else _NO_MODELS)
    for check in status.models:
        alias = check.model.alias
        words = f"usable, context {contexts.get(alias, 'unknown')}" if check.usable else check.problem
        yield _line(alias, words, good=check.usable)
    if status.tool_servers:
        yield Text("servers of tools:")
        yield from server_lines(status.tool_servers)
    yield Text(f"confinement: {CONFINEMENT.get(status.confinement, 'commands do not run here')}")


def _line(name: str, words: str, *, good: bool) -> Text:
    return Text.assemble("  ", (safe_line(name), "bold"), ": ", (safe_line(words), "green" if good else "yellow"))
