"""The commands. Each body loads what it needs when it is called."""
# ruff: noqa: PLC0415 - imports stand in the bodies, so that --help and usage errors load nothing else

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from turnwright_cli import options
from turnwright_cli.options import Group, finish, root_of, settings_of, several

if TYPE_CHECKING:
    from turnwright_cli.config import CliSettings


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        click.echo(f"turnwright {version('turnwright')}")
        context.exit()


@click.group(cls=Group)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def app() -> None:
    """Give an agent work, follow it, decide on what it proposes, and serve the runtime behind it."""


task_options = several(
    click.argument("prompt", metavar="PROMPT", help="What to do; - reads standard input."),
    options.project,
    click.option("--model", metavar="MODEL", help="Alias of a model, or vendor/model; an existing run keeps its own."),
    click.option("--run", metavar="ALIAS", help="Run to continue or create [TURNWRIGHT_RUN; a new one]"),
    click.option("--fork", is_flag=True, help="Give the task to a fork of the run that --run names."),
    click.option("--yolo", is_flag=True, help="Accept every proposal without asking."),
    options.calls,
    click.option(
        "--without",
        metavar="WHAT",
        multiple=True,
        help="repo, web, interaction or proposals: do without it; repeatable.",
    ),
    click.option(
        "--reasoning", metavar="HOW_MUCH", help="How much the model reasons: off, low, medium, high or tokens."
    ),
    click.option(
        "--answer-schema", metavar="FILE", help="The answer is JSON that meets this JSON Schema; - takes any object."
    ),
    options.limits,
    options.as_json,
    options.server,
)


@app.command()
@task_options
def act(**given: Any) -> None:
    """Have work done: files may change and commands may run, as you decide."""
    _task("ACT", given)


@app.command()
@task_options
def ask(**given: Any) -> None:
    """Have a question answered: nothing changes."""
    _task("ASK", given)


def _task(mode: str, given: dict[str, Any]) -> NoReturn:
    from turnwright_cli.tasks import (
        Task,
        answer_format_of,
        budget_of,
        check_without,
        read_prompt,
        reasoning_of,
        run_task,
    )
    from turnwright_core.runs import Mode

    settings = settings_of(server=given["server"], run=given["run"])
    if given["fork"] and not settings.run:
        raise click.UsageError("--fork needs --run.")
    task = Task(
        Mode[mode],
        read_prompt(given["prompt"]),
        root_of(settings, given["project"]),
        given["model"] or "",
        settings.run,
        given["yolo"],
        given["fork"],
        check_without(given["without"]),
        budget_of(given["max_turns"], given["max_tokens"], given["max_cost"], given["max_seconds"]),
        reasoning_of(given["reasoning"]),
        answer_format_of(given["answer_schema"]),
        options.call_style(given["calls"]),
    )
    finish(run_task(settings, task, as_json=given["as_json"]))


@app.command()
@options.run
@click.argument("path", metavar="[PATH]", help="The proposal; optional if only one is pending.", default="")
@click.option("--accept/--reject", default=None, help="The decision.")
@click.option("--reason", default="", metavar="TEXT", help="With --reject: what the model reads.")
@click.option("--edit", is_flag=True, help="Edit it in $VISUAL or $EDITOR, then accept it.")
@click.option(
    "--content-file",
    metavar="[PATH=]FILE",
    multiple=True,
    help="Accept with this content; - is standard input.",
)
@click.option("--answer", default="", metavar="TEXT", help="Answer to the question.")
@options.common
def resolve(
    run: str,
    path: str,
    accept: bool | None,
    reason: str,
    edit: bool,
    content_file: tuple[str, ...],
    answer: str,
    project: str | None,
    as_json: bool,
    server: str | None,
) -> None:
    """Decide on a proposal; the loop goes on and is followed to its end. --edit, --content-file and --answer accept.

    At a terminal, without a decision: what waits is shown and asked for.
    """
    from turnwright_cli.editing import contents_from
    from turnwright_cli.prompting import PromptDecision, cut_comment
    from turnwright_cli.tasks import ResolveTask, ask_for, has_terminal
    from turnwright_cli.tasks import resolve as decide

    changes = [edit, content_file, answer]
    if accept is None and not any(changes) and not reason and not as_json and has_terminal():
        settings = settings_of(server=server)
        finish(ask_for(settings, root_of(settings, project), run, path))
    accepts = _accepts(accept, reason, changes)
    settings = settings_of(server=server)
    decision = PromptDecision(accepts, cut_comment(reason), contents_from(content_file), answer, edits=edit)
    finish(decide(settings, ResolveTask(root_of(settings, project), run, path, decision), as_json=as_json))


def _accepts(accept: bool | None, reason: str, changes: list[Any]) -> bool:
    """Whether the options accept. Raises UsageError where they contradict each other."""
    changed = sum(map(bool, changes))
    if changed > 1:
        raise click.UsageError("Use only one of --edit, --content-file and --answer.")
    if accept is None and not changed:
        raise click.UsageError("Add --accept or --reject: without a terminal nobody can be asked.")
    if accept is False and changed:
        raise click.UsageError("--edit, --content-file and --answer accept; --reject does not.")
    if accept is not False and reason:
        raise click.UsageError("--reason goes with --reject.")
    return accept is not False


@app.command()
@click.option("--watch", is_flag=True, help="Keep watching until Ctrl-C.")
@click.option("--all", "every", is_flag=True, help="All projects, not only this one.")
@options.common
def inbox(watch: bool, every: bool, project: str | None, as_json: bool, server: str | None) -> None:
    """List what waits for a decision, the longest waiting first."""
    from turnwright_cli.inbox import follow_inbox, show_inbox

    settings = settings_of(server=server)
    root = None if every else root_of(settings, project)
    finish((follow_inbox if watch else show_inbox)(settings, root, as_json=as_json))


@app.group(cls=Group, invoke_without_command=True)
@click.option("--watch", is_flag=True, help="Keep watching until Ctrl-C.")
@options.common
@click.pass_context
def runs(context: click.Context, /, watch: bool, **given: Any) -> None:
    """The runs of a project; without a command they are listed, latest first."""
    context.obj = given
    if context.invoked_subcommand is None:
        from turnwright_cli.lists import list_runs
        from turnwright_cli.steering import watch_runs

        settings = settings_of(server=given["server"])
        show = watch_runs if watch else list_runs
        finish(show(settings, root_of(settings, given["project"]), as_json=given["as_json"]))


def one_run(before: dict[str, Any], after: dict[str, Any]) -> tuple[CliSettings, str, bool]:
    """Settings, project and form: options may stand before or after the name of the subcommand."""
    given = {name: after[name] or before[name] for name in after}
    settings = settings_of(server=given["server"])
    return settings, root_of(settings, given["project"]), bool(given["as_json"])


@runs.command("show")
@options.run
@click.option("--full", is_flag=True, help="Show long proposals in full.")
@click.option("--turns", is_flag=True, help="Show its turns too, with each command and how it ended.")
@options.common
@click.pass_obj
def runs_show(before: dict[str, Any], /, run: str, full: bool, turns: bool, **after: Any) -> None:
    """Show one run: its loops, and what waits for a decision."""
    from turnwright_cli.lists import show_run

    settings, root, json = one_run(before, after)
    finish(show_run(settings, root, run, as_json=json, whole=full, turns=turns))


@runs.command("abort")
@options.run
@options.common
@click.pass_obj
def runs_abort(before: dict[str, Any], /, run: str, **after: Any) -> None:
    """End the active loop of a run."""
    from turnwright_cli.lists import abort_run

    settings, root, json = one_run(before, after)
    finish(abort_run(settings, root, run, as_json=json))


@app.command()
@options.as_json
@options.server
def doctor(as_json: bool, server: str | None) -> None:
    """Tell what is configured, what answers, and what is missing."""
    from turnwright_cli.doctor import doctor as examine

    finish(examine(settings_of(server=server), as_json=as_json))


@app.command()
@click.option("--only", metavar="NAME", multiple=True, help="Run this service; repeatable.")
@click.option(
    "--listen",
    metavar="[NAME=]ADDR",
    multiple=True,
    help="Address a service listens on; without NAME, the executor.",
)
@click.option("--store", metavar="ADDR", help="Address of a store that runs elsewhere.")
@click.option("--assembler", metavar="ADDR", help="Address of an assembler that runs elsewhere.")
@click.option("--provider", metavar="ADDR", help="Address of a provider that runs elsewhere.")
@options.database
def serve(only: tuple[str, ...], listen: tuple[str, ...], db: str | None, **peers: str | None) -> None:
    """Run the services in this process, all four or those named, until SIGINT or SIGTERM."""
    from turnwright_cli.serving import serve as run_services
    from turnwright_cli.serving import serve_plan, words

    settings = settings_of()
    plan = serve_plan(only or words(settings.only), listen or words(settings.listen), peers, db)
    finish(run_services(plan, settings))


@app.group(cls=Group)
def store() -> None:
    """The store's database."""


@store.command("backup")
@options.backup_file
@options.database
@options.as_json
def store_backup(file: Path, db: str | None, as_json: bool) -> None:
    """Write the store's database into a new file, whether the store runs or not."""
    from turnwright_cli.storing import backup_store

    raise SystemExit(backup_store(file, db, as_json=as_json))


@store.command("restore")
@options.backup_file
@options.database
@options.as_json
def store_restore(file: Path, db: str | None, as_json: bool) -> None:
    """Fill an empty database from a backup, of the same kind or of the other one."""
    from turnwright_cli.storing import restore_store

    raise SystemExit(restore_store(file, db, as_json=as_json))


@app.group(cls=Group)
def policy() -> None:
    """Voters and other plugins."""


@policy.command("test")
@click.option(
    "--hook",
    metavar="MODULE:FUNCTION",
    multiple=True,
    help="A voter, or a plugin's register; repeatable.",
)
@click.option("--run", metavar="[PROJECT/]RUN", multiple=True, help="Over this run; repeatable.")
@click.option("--all", "every", is_flag=True, help="Over every run of the project.")
@options.common
def policy_test(
    hook: tuple[str, ...],
    run: tuple[str, ...],
    every: bool,
    project: str | None,
    as_json: bool,
    server: str | None,
) -> None:
    """Tell which verdicts of stored turns would differ with a voter; nothing is changed. 1: some would."""
    from turnwright_cli.policy import PolicyTest, try_policy

    if every == bool(run):
        raise click.UsageError("Say --run RUN, or --all.")
    settings = settings_of(server=server)
    finish(try_policy(settings, PolicyTest(hook, run, root_of(settings, project)), as_json=as_json))


@app.command()
@click.option("--tier", metavar="TIER", required=True, help="client, model or plugin.")
@click.option("--principal", metavar="NAME", required=True, help="Who will use it.")
def token(tier: str, principal: str) -> None:
    """Print a token of a lower tier, derived from this deployment's own."""
    from turnwright_cli.tokens import derived, secret_of

    print(derived(secret_of(settings_of()), tier, principal))


@app.command()
@click.option("--source", hidden=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
def demo(source: Path | None) -> None:
    """Show the whole of it on a small project, without a key and without a network."""
    from turnwright_cli.demonstration import demo as show

    finish(show(source))


from turnwright_cli import model_commands as _models  # noqa: E402, F401 - they join the app when they are imported
from turnwright_cli import plan_commands as _plans  # noqa: E402, F401
from turnwright_cli import steering_commands as _more  # noqa: E402, F401
