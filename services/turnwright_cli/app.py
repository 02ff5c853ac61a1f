"""The commands and their options. Each body loads what it needs when it is called."""
# ruff: noqa: PLC0415 - imports stand in the bodies, so that --help and usage errors load nothing else

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from turnwright_cli.config import CliSettings

app = typer.Typer(
    name="turnwright",
    help="Give an agent work, follow it, decide on what it proposes, and serve the runtime behind it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
runs_app = typer.Typer(help="The runs of a project.", invoke_without_command=True, rich_markup_mode=None)
app.add_typer(runs_app, name="runs")
store_app = typer.Typer(help="The store's database.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(store_app, name="store")
policy_app = typer.Typer(help="Voters and other plugins.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(policy_app, name="policy")

Project = Annotated[
    str | None, typer.Option("--project", metavar="DIR", help="Directory of the project [TURNWRIGHT_PROJECT; .]")
]
Server = Annotated[
    str | None,
    typer.Option("--server", metavar="ADDR", help="Executor to use [TURNWRIGHT_SERVER; live stack, else an own one]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print messages as JSON, one a line, and nothing else.")]
Model = Annotated[str | None, typer.Option("--model", metavar="ALIAS", help="Model; a run that exists keeps its own.")]
Run = Annotated[
    str | None, typer.Option("--run", metavar="ALIAS", help="Run to continue or create [TURNWRIGHT_RUN; a new one]")
]
Yolo = Annotated[bool, typer.Option("--yolo", help="Accept every proposal without asking.")]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="WHAT", help="repo, web, interaction or proposals: do without it; repeatable."),
]
Fork = Annotated[bool, typer.Option("--fork", help="Give the task to a fork of the run that --run names.")]
MaxTurns = Annotated[int | None, typer.Option("--max-turns", metavar="N", min=0, help="At most so many turns.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", metavar="N", min=0, help="At most so many tokens.")]
MaxCost = Annotated[float | None, typer.Option("--max-cost", metavar="USD", min=0, help="At most so many US dollars.")]
MaxSeconds = Annotated[float | None, typer.Option("--max-seconds", metavar="S", min=0, help="At most so long a work.")]
Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="What to do; - reads standard input.")]
Alias = Annotated[str, typer.Argument(metavar="RUN", help="Alias of the run.")]
BackupFile = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.", dir_okay=False)]
Database = Annotated[
    str | None,
    typer.Option("--db", metavar="DB", help="Database: a file, or postgresql://... [TURNWRIGHT_DB; that of the home]"),
]


def settings_of(**options: object) -> CliSettings:
    """The settings of a command; options that were not given come from the environment."""
    from turnwright_cli.config import CliSettings
    from turnwright_core.kit.settings import load

    return load(CliSettings, **options)


def finish(work: Coroutine[Any, Any, int]) -> None:
    """Run a command's coroutine and exit with its code."""
    import asyncio

    raise typer.Exit(asyncio.run(work))


def _task(mode: str, prompt: str, options: dict[str, Any]) -> None:
    from turnwright_cli.tasks import Task, budget_of, check_without, project_root, read_prompt, run_task
    from turnwright_core.runs import Mode

    settings = settings_of(server=options["server"], run=options["run"])
    if options["fork"] and not settings.run:
        raise typer.BadParameter("--fork needs --run.")
    task = Task(
        Mode[mode],
        read_prompt(prompt),
        project_root(settings, options["project"]),
        options["model"] or "",
        settings.run,
        options["yolo"],
        options["fork"],
        check_without(options["without"] or ()),
        budget_of(options["max_turns"], options["max_tokens"], options["max_cost"], options["max_seconds"]),
    )
    finish(run_task(settings, task, as_json=options["as_json"]))


@app.command()
def act(
    prompt: Prompt,
    project: Project = None,
    model: Model = None,
    run: Run = None,
    fork: Fork = False,
    yolo: Yolo = False,
    without: Without = None,
    max_turns: MaxTurns = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    max_seconds: MaxSeconds = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """Have work done: files may change and commands may run, as you decide."""
    _task("ACT", prompt, locals())


@app.command()
def ask(
    prompt: Prompt,
    project: Project = None,
    model: Model = None,
    run: Run = None,
    fork: Fork = False,
    yolo: Yolo = False,
    without: Without = None,
    max_turns: MaxTurns = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    max_seconds: MaxSeconds = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """Have a question answered: nothing changes."""
    _task("ASK", prompt, locals())


@app.command()
def resolve(
    run: Alias,
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="The proposal; may be left out when one waits.")] = "",
    accept: Annotated[bool | None, typer.Option("--accept/--reject", help="The decision.")] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="With --reject: what the model reads.")] = "",
    edit: Annotated[bool, typer.Option("--edit", help="Accept what you make of it in $VISUAL or $EDITOR.")] = False,
    content_file: Annotated[
        list[str] | None,
        typer.Option("--content-file", metavar="[PATH=]FILE", help="Accept with this content; - is standard input."),
    ] = None,
    answer: Annotated[str, typer.Option("--answer", metavar="TEXT", help="Answer the question that is asked.")] = "",
    project: Project = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """Decide on a proposal; the loop goes on and is followed to its end. --edit, --content-file and --answer accept."""
    from turnwright_cli.editing import contents_from
    from turnwright_cli.prompting import Decision, cut_comment
    from turnwright_cli.tasks import Verdict, project_root
    from turnwright_cli.tasks import resolve as decide

    if sum(map(bool, (edit, content_file, answer))) > 1:
        raise typer.BadParameter("--edit, --content-file and --answer exclude each other.")
    accepts = accept or bool(edit or content_file or answer)
    if accept is None and not accepts:
        raise typer.BadParameter("Say --accept or --reject.")
    if accept is False and accepts:
        raise typer.BadParameter("--edit, --content-file and --answer accept; --reject does not.")
    if accepts and reason:
        raise typer.BadParameter("--reason goes with --reject.")
    settings = settings_of(server=server)
    contents = contents_from(content_file or ())
    decision = Decision(accepts, cut_comment(reason), contents, answer, edits=edit)
    finish(decide(settings, Verdict(project_root(settings, project), run, path, decision), as_json=as_json))


@app.command()
def inbox(
    watch: Annotated[bool, typer.Option("--watch", help="Go on with what comes and goes, until Ctrl-C.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Of all projects, not of this one only.")] = False,
    project: Project = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """List what waits for a decision, the longest waiting first."""
    from turnwright_cli.inbox import follow_inbox, show_inbox
    from turnwright_cli.tasks import project_root

    settings = settings_of(server=server)
    root = None if every else project_root(settings, project)
    finish((follow_inbox if watch else show_inbox)(settings, root, as_json=as_json))


@runs_app.callback()
def runs(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Go on with what changes, until Ctrl-C.")] = False,
    project: Project = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """List the runs of a project, latest first."""
    from turnwright_cli.lists import list_runs
    from turnwright_cli.steering import watch_runs
    from turnwright_cli.tasks import project_root

    context.obj = {"project": project, "as_json": as_json, "server": server}
    if context.invoked_subcommand is None:
        settings = settings_of(server=server)
        show = watch_runs if watch else list_runs
        finish(show(settings, project_root(settings, project), as_json=as_json))


def one_run(context: typer.Context, **options: Any) -> tuple[CliSettings, str, bool]:
    """Options may stand before or after the name of the subcommand."""
    from turnwright_cli.tasks import project_root

    given = {name: options[name] or context.obj[name] for name in options}
    settings = settings_of(server=given["server"])
    return settings, project_root(settings, given["project"]), bool(given["as_json"])


@runs_app.command("show")
def runs_show(
    context: typer.Context, run: Alias, project: Project = None, as_json: AsJson = False, server: Server = None
) -> None:
    """Show one run: its loops, and what waits for a decision."""
    from turnwright_cli.lists import show_run

    settings, root, json = one_run(context, project=project, as_json=as_json, server=server)
    finish(show_run(settings, root, run, as_json=json))


@runs_app.command("abort")
def runs_abort(
    context: typer.Context, run: Alias, project: Project = None, as_json: AsJson = False, server: Server = None
) -> None:
    """End the active loop of a run."""
    from turnwright_cli.lists import abort_run

    settings, root, json = one_run(context, project=project, as_json=as_json, server=server)
    finish(abort_run(settings, root, run, as_json=json))


@app.command()
def models(as_json: AsJson = False, server: Server = None) -> None:
    """List the models that runs may name, and whether each could be called now."""
    from turnwright_cli.lists import list_models

    finish(list_models(settings_of(server=server), as_json=as_json))


@app.command()
def doctor(as_json: AsJson = False, server: Server = None) -> None:
    """Tell what is configured, what answers, and what is missing."""
    from turnwright_cli.doctor import doctor as examine

    finish(examine(settings_of(server=server), as_json=as_json))


@app.command()
def serve(
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Run this service; repeatable.")] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option("--listen", metavar="[NAME=]ADDR", help="Where a service listens; without NAME the executor."),
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="ADDR", help="A store elsewhere.")] = None,
    assembler: Annotated[str | None, typer.Option(metavar="ADDR", help="An assembler elsewhere.")] = None,
    provider: Annotated[str | None, typer.Option(metavar="ADDR", help="A provider elsewhere.")] = None,
    db: Database = None,
) -> None:
    """Run the services in this process, all four or those named, until SIGINT or SIGTERM."""
    from turnwright_cli.serving import serve as run_services
    from turnwright_cli.serving import serve_plan, words

    settings = settings_of()
    peers = {"store": store, "assembler": assembler, "provider": provider}
    plan = serve_plan(only or words(settings.only), listen or words(settings.listen), peers, db)
    finish(run_services(plan, settings))


@store_app.command("backup")
def store_backup(file: BackupFile, db: Database = None, as_json: AsJson = False) -> None:
    """Write the store's database into a new file, whether the store runs or not."""
    from turnwright_cli.storing import backup_store

    raise typer.Exit(backup_store(file, db, as_json=as_json))


@store_app.command("restore")
def store_restore(file: BackupFile, db: Database = None, as_json: AsJson = False) -> None:
    """Fill an empty database from a backup, of the same kind or of the other one."""
    from turnwright_cli.storing import restore_store

    raise typer.Exit(restore_store(file, db, as_json=as_json))


@policy_app.command("test")
def policy_test(
    hook: Annotated[
        list[str] | None,
        typer.Option("--hook", metavar="MODULE:FUNCTION", help="A voter, or a plugin's register; repeatable."),
    ] = None,
    run: Annotated[
        list[str] | None, typer.Option("--run", metavar="[PROJECT/]RUN", help="Over this run; repeatable.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Over every run of the project.")] = False,
    project: Project = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """Tell which verdicts of stored turns would differ with a voter; nothing is changed. 1: some would."""
    from turnwright_cli.policy import PolicyTest, try_policy
    from turnwright_cli.tasks import project_root

    if every == bool(run):
        raise typer.BadParameter("Say --run RUN, or --all.")
    settings = settings_of(server=server)
    wanted = PolicyTest(tuple(hook or ()), tuple(run or ()), project_root(settings, project))
    finish(try_policy(settings, wanted, as_json=as_json))


@app.command()
def token(
    tier: Annotated[str, typer.Option(metavar="TIER", help="client, model or plugin.")],
    principal: Annotated[str, typer.Option(metavar="NAME", help="Who will use it.")],
) -> None:
    """Print a token of a lower tier, derived from this deployment's own."""
    from turnwright_cli.tokens import derived

    print(derived(settings_of().secret(), tier, principal))


@app.command()
def demo(source: Annotated[Path | None, typer.Option(hidden=True, exists=True, file_okay=False)] = None) -> None:
    """Show the whole of it on a small project, without a key and without a network."""
    from turnwright_cli.demonstration import demo as show

    finish(show(source))


from turnwright_cli import steering_commands as _more  # noqa: E402, F401 - they join the app when they are imported
