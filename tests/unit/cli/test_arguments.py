"""What the command line refuses before it talks to anybody: exit code 2 and a sentence."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable
from importlib.metadata import version

import click
import pytest
from turnwright.types.v1 import budget_pb2

from turnwright_cli.app import PARALLEL_MAX, REPEATS_MAX, app
from turnwright_cli.examples import EXAMPLES
from turnwright_cli.exit_codes import USAGE, FailureError
from turnwright_cli.explaining import explain
from turnwright_cli.invocation import Invocation
from turnwright_cli.options import WorkCommand, function_of
from turnwright_cli.schedules import add_schedule
from turnwright_kit.identity.own_tokens import DAYS_MAX


def turnwright(*arguments: str, home, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TURNWRIGHT_")}
    return subprocess.run(
        [sys.executable, "-m", "turnwright_cli", *arguments],
        input=stdin,
        capture_output=True,
        env={**inherited, "TURNWRIGHT_HOME": str(home), **environment},
        timeout=60,
        check=False,
    )


REFUSED = {
    "no such project": (["act", "x", "--project", "/no/such/dir"], b"", b"/no/such/dir"),
    "project is a file": (["act", "x", "--project", __file__], b"", b"is not a directory"),
    "empty prompt": (["act", " "], b"", b"The prompt is empty"),
    "empty standard input": (["ask", "-"], b"", b"The prompt is empty"),
    "ten megabytes": (["act", "-"], b"x" * 10_000_000, b"longer than 1048576 bytes"),
    "no text": (["act", "-"], b"a\xff", b"not UTF-8 text (byte 1)"),
    "no decision": (["resolve", "r"], b"", b"--accept or --reject"),
    "reason for an acceptance": (["resolve", "r", "--accept", "--reason", "x"], b"", b"--reason"),
    "unknown service": (["serve", "--only", "stor"], b"", b"--only"),
    "bad address": (["serve", "--listen", "7440"], b"", b"--listen"),
    "unknown kind": (["token", "create", "--kind", "root", "--principal", "x"], b"", b"--kind"),
    "bad principal": (["token", "create", "--principal", "a b"], b"", b"principal"),
    "two times for a schedule": (
        ["schedules", "add", "r", "s", "--cron", "* * * * *", "--every", "1h"],
        b"",
        b"--every",
    ),
    "no time": (["schedules", "add", "r", "s", "--every", "soon"], b"", b"such as 10m"),
    "unknown command": (["fly"], b"", b"No such command"),
    "unknown option": (["act", "x", "--fly"], b"", b"No such option"),
}


@pytest.mark.parametrize(("arguments", "stdin", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_call_exits_with_2_and_says_what_is_wrong(arguments, stdin, said, tmp_path) -> None:
    done = turnwright(*arguments, home=tmp_path / "home", stdin=stdin)

    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_wrong_setting_is_named(tmp_path) -> None:
    done = turnwright("act", "x", home=tmp_path, TURNWRIGHT_RPC_TIMEOUT_S="soon")

    assert done.returncode == 2
    assert b"TURNWRIGHT_RPC_TIMEOUT_S" in done.stderr


def test_a_server_that_is_not_there_is_unreachable(tmp_path) -> None:
    done = turnwright("act", "x", "--server", "127.0.0.1:1", "--project", str(tmp_path), home=tmp_path)

    assert (done.returncode, done.stdout) == (5, b"")
    assert b"127.0.0.1:1 does not answer" in done.stderr
    assert b"refused. Is it running there, for instance by `turnwright serve`?" in done.stderr
    assert b"turnwright doctor" in done.stderr


def test_a_server_that_others_could_read_is_refused_by_the_names_of_settings(tmp_path) -> None:
    done = turnwright("act", "x", "--server", "10.0.0.1:1", "--project", str(tmp_path), home=tmp_path)

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Set TURNWRIGHT_TLS_CA, or TURNWRIGHT_INSECURE=true if" in done.stderr


@pytest.mark.parametrize("command", [["runs"], ["token", "create", "--principal", "ci"]], ids=lambda c: c[0])
def test_a_token_file_that_holds_none_says_what_to_do(command, tmp_path) -> None:
    (tmp_path / "token").touch(0o600)

    done = turnwright(*command, home=tmp_path)

    assert (done.returncode, done.stdout) == (5, b"")
    assert b"is empty: delete it" in done.stderr


def test_a_home_that_cannot_be_made_is_reported_plainly(tmp_path) -> None:
    done = turnwright("runs", home="/proc/nowhere/home")

    assert (done.returncode, done.stdout) == (5, b"")
    assert b"/proc/nowhere" in done.stderr
    assert b"Choose another one with TURNWRIGHT_HOME" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_token_is_made_from_the_deployments_secret(tmp_path) -> None:
    from turnwright_core.rpc.headers import call_metadata
    from turnwright_kit.identity.gate import CallerGate
    from turnwright_kit.identity.own_tokens import TokenKey

    asked = ("--principal", "ci", "--kind", "plugin", "--project", "thing", "--group", "devs", "--audience", "store")
    done = turnwright("token", "create", *asked, home=tmp_path)
    key = turnwright("token", "key", "store", home=tmp_path)

    gate = CallerGate("store", (), keys=[TokenKey.parse(key.stdout.decode().strip())])
    caller = gate.caller(call_metadata(done.stdout.decode().strip()))
    assert (done.returncode, caller.name, caller.kind.value) == (0, "ci", "plugin")
    assert (caller.projects, caller.groups) == ({"thing"}, {"devs"})


def commands(group: click.Group) -> list[WorkCommand]:
    found = []
    for command in group.commands.values():
        found += commands(command) if isinstance(command, click.Group) else [command]
    return found


@pytest.mark.parametrize("command", commands(app), ids=lambda command: command.work)
def test_the_function_of_a_command_takes_its_options(command) -> None:
    own = {param.name: None for param in command.params if param.name not in Invocation.SHARED}

    bound = inspect.signature(function_of(command.work)).bind(Invocation(), **own)

    assert len(bound.args) + len(bound.kwargs) == len(own) + 1


def test_help_loads_neither_grpc_nor_a_service(tmp_path) -> None:
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from turnwright_cli.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('grpc', 'sqlalchemy', 'pydantic') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)

    assert done.stderr.strip() == b"[]"
    assert b"Commands:" in done.stdout


def test_the_version_is_reported(tmp_path) -> None:
    done = turnwright("--version", home=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"turnwright {version('turnwright')}\n".encode(), b"")


def test_a_command_works_without_standard_streams(tmp_path) -> None:
    command = [sys.executable, "-m", "turnwright_cli", "runs", "--project", str(tmp_path)]
    closed = ["/bin/sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command]

    done = subprocess.run(closed, env={**os.environ, "TURNWRIGHT_HOME": str(tmp_path)}, timeout=60, check=False)

    assert done.returncode == 0


def commands_of(command: click.Command, path: str) -> dict[str, click.Command]:
    inner = command.commands.items() if isinstance(command, click.Group) else ()
    return {path: command} | {p: c for name, one in inner for p, c in commands_of(one, f"{path} {name}").items()}


def test_every_command_has_examples_that_parse_and_help_of_80_columns() -> None:
    commands = commands_of(app, "turnwright")
    assert commands.keys() == EXAMPLES.keys()
    for path, command in commands.items():
        context = click.Context(command, info_name=path, terminal_width=80, max_content_width=80)
        told = command.get_help(context)
        assert max(map(len, told.splitlines())) <= 80
        assert re.findall(r"\w\.\.\.$", told, re.MULTILINE) == [], "a command is described by half a sentence"
        for example in EXAMPLES[path]:
            called = re.split(r' {3}| \| |\)"', example[example.index("turnwright") :])[0]
            words = shlex.split(called)[1:]
            named, name = app, "turnwright"
            while words and isinstance(named, click.Group) and words[0] in named.commands:
                name = f"{name} {words[0]}"
                named = named.commands[words.pop(0)]
            assert name.startswith(path), example
            named.make_context(name, words)


PORT_MAX = 65535


def test_every_number_that_an_option_takes_fits_into_its_field() -> None:
    numbers = [
        parameter.type
        for command in commands_of(app, "turnwright").values()
        for parameter in command.params
        if isinstance(parameter.type, click.types.IntParamType)
    ]
    assert len(numbers) > 5
    fields = {2**32 - 1: budget_pb2.Budget(turns_max=2**32 - 1), 2**53 - 1: budget_pb2.Budget(tokens_max=2**53 - 1)}
    # The days of a token, what `eval` counts itself, and a port of this host are in no field.
    assert {getattr(number, "max", None) for number in numbers} == {
        *fields,
        DAYS_MAX,
        REPEATS_MAX,
        PARALLEL_MAX,
        PORT_MAX,
    }


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["act", "a\udcff"], "PROMPT"),
        (["act", "a", "--run", "\udcff"], "RUN"),
        (["act", "a", "--image", "b.png", "--image", "\udcff"], "IMAGE"),
        (["runs", "show", "\udcff"], "RUN"),
        (["runs", "--project", "\udcff", "show", "r"], "PROJECT"),
    ],
)
def test_an_argument_that_is_not_utf8_is_named(words, name) -> None:
    with pytest.raises(click.UsageError, match=f"{name} is not UTF-8 text"):
        app.main(words, standalone_mode=False)


def test_a_folder_whose_name_is_not_utf8_is_no_project(tmp_path) -> None:
    folder = tmp_path / "a\udcff"
    folder.mkdir()
    with pytest.raises(FailureError, match="not a name in UTF-8"):
        _ = Invocation(str(folder)).root


async def refused(work: Awaitable[int]) -> str:
    with pytest.raises(FailureError) as failure:
        await work
    assert failure.value.exit_code == USAGE
    return failure.value.message


@pytest.mark.parametrize("every", ["366d", "99999d", "999999999d", "0s", "-1d", "1.5h"])
@pytest.mark.asyncio
async def test_an_interval_is_at_most_a_year(every) -> None:
    when = {"cron": "", "tz": "", "every": every, "mode": None, "model": "", "yolo": False, "without": ()}
    when |= {"new_run": False, "overlap": False}
    call = add_schedule(Invocation(), run="r", schedule_id="s", prompt="", **when)
    assert "at most 365d" in await refused(call)


@pytest.mark.asyncio
async def test_the_next_turn_has_no_number() -> None:
    assert "TURN" in await refused(explain(Invocation(), run="r", turn=3, following=True, full=False))


DASHED = {
    "an item": (["act", "- fix it", "-m", "m"], {"prompt": "- fix it", "model": "m"}),
    "before options": (["act", "-m", "m", "- a\n- b", "--yolo"], {"prompt": "- a\n- b", "yolo": True}),
    "a word": (["act", "--all tests fail"], {"prompt": "--all tests fail"}),
    "the last of two": (["plan", "set", "r", "- do it"], {"run": "r", "text": "- do it"}),
    "of an option": (["resolve", "r", "--reject", "--reason", "- not now"], {"run": "r", "reason": "- not now"}),
    "after two dashes": (["ask", "--", "- why"], {"prompt": "- why"}),
    "an option with its value": (["act", "Do it.", "--model=a b"], {"prompt": "Do it.", "model": "a b"}),
}


@pytest.mark.parametrize(("arguments", "read"), DASHED.values(), ids=DASHED.keys())
def test_a_text_may_begin_with_a_dash(arguments, read) -> None:
    command, depth = app, 0
    while isinstance(command, click.Group):
        command, depth = command.commands[arguments[depth]], depth + 1
    context = command.make_context("x", arguments[depth:])
    assert {name: context.params[name] for name in read} == read


@pytest.mark.parametrize("arguments", [["act", "-fix"], ["act", "x", "--modle", "m"]])
def test_an_option_that_there_is_not_is_still_refused(arguments) -> None:
    with pytest.raises(click.NoSuchOption):
        app.commands["act"].make_context("act", arguments[1:])


@pytest.mark.parametrize("group", ["runs", "models", "plan", "schedules"])
def test_whatever_lists_something_can_be_asked_to_list(group) -> None:
    assert "list" in app.commands[group].commands
