"""The commands, in the order of --help: their arguments, and the function that implements each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from click import Argument, Option

from turnwright_cli.app_administration import add_administration, add_mcp
from turnwright_cli.app_rights import add_rights
from turnwright_cli.options import (
    AS_JSON,
    AT_LEAST_0,
    CALLS,
    COMMON,
    DATABASE,
    FILE,
    FOLDER,
    LIMITS,
    PROJECT,
    PROMPT_EDITS,
    RUN,
    SERVER,
    WATCH,
    WITHOUT,
    WITHOUT_PROJECT,
    add_command,
    add_group,
    make_app,
    offering,
)

_MODEL: Final = Option(
    ["-m", "--model"],
    metavar="MODEL",
    help="Alias of a model, or vendor/model; an existing run keeps its own.",
    shell_complete=offering("completing:models"),
)
REPEATS_MAX: Final = 1_000
"""How often `eval` does a task."""
PARALLEL_MAX: Final = 64
"""Tasks that `eval` does at a time."""
_YOLO: Final = Option(["-y", "--yolo"], is_flag=True, help="Accept every proposal without asking.")

app = make_app(
    "chat:chat",
    "Work with an agent at the terminal: without a command, `turnwright` opens a session. The commands give single "
    "tasks, manage runs, and run the services behind them.",
    COMMON[0],
    Option(["-c", "--continue", "last"], is_flag=True, help="Continue the latest run of the project."),
    Option(["-r", "--run"], metavar="ALIAS", help="Continue this run.", shell_complete=offering("completing:runs")),
    _MODEL,
    _YOLO,
    SERVER,
)
click.version_option(package_name="turnwright", message="turnwright %(version)s", help="Show the version.")(app)

_TASK: Final = (
    Argument(["prompt"], metavar="PROMPT", help="The task; - reads standard input."),
    COMMON[0],
    _MODEL,
    Option(
        ["-r", "--run"],
        metavar="ALIAS",
        help="Run to continue or create [TURNWRIGHT_RUN; a new one]",
        shell_complete=offering("completing:runs"),
    ),
    Option(["--private"], is_flag=True, help="A new run is there for you and the project's owners alone."),
    Option(
        ["--place"],
        type=click.Choice(["shared", "worktree", "clone"]),
        help="Where a new run works: with others, or in a work tree or clone of the project's git repository [shared]",
    ),
    Option(["--fork"], is_flag=True, help="Give the task to a fork of the run that --run names."),
    _YOLO,
    CALLS,
    WITHOUT,
    Option(
        ["--reasoning"],
        metavar="LEVEL",
        help="How much the model reasons: off, low, medium, high or a number of tokens.",
    ),
    Option(
        ["--assembly"],
        type=click.Choice(["packet", "transcript"]),
        help="How the run is sent to the model; an existing run keeps its own [the project's]",
    ),
    Option(
        ["--summaries/--no-summaries"],
        default=None,
        help="Have the model summarize a transcript before messages are evicted; an existing run keeps its choice [no]",
    ),
    Option(
        ["--project-instructions/--no-project-instructions"],
        default=None,
        help="Read AGENTS.md and CLAUDE.md as instructions; an existing run keeps its choice [yes]",
    ),
    Option(
        ["--image"],
        metavar="PATH",
        multiple=True,
        help="Show the model an image of the project with the prompt; repeatable.",
    ),
    Option(
        ["--answer-schema"],
        metavar="FILE",
        help="Require an answer in JSON that matches this JSON Schema; -: any object.",
    ),
    PROMPT_EDITS,
    *LIMITS,
    AS_JSON,
    SERVER,
)
add_command(
    app, "act", "tasks:act", "Give a task: files may change and commands may run, as you approve.", *_TASK, common=()
)
add_command(app, "ask", "tasks:ask", "Ask a question: nothing is changed.", *_TASK, common=())
add_command(
    app,
    "resolve",
    "tasks:resolve",
    "Decide on a proposal, then follow the loop to its end. --edit, --content-file and --answer imply --accept.\n\n"
    "At a terminal, without a decision, shows the proposal and asks.",
    RUN,
    Argument(["path"], metavar="[PATH]", help="The proposal; optional if only one is pending.", default=""),
    Option(["--accept/--reject"], default=None, help="The decision."),
    Option(["--reason"], default="", metavar="TEXT", help="With --reject: what the model reads."),
    Option(["--edit"], is_flag=True, help="Edit it in $VISUAL or $EDITOR, then accept it."),
    Option(
        ["--content-file"], metavar="[PATH=]FILE", multiple=True, help="Accept with this content; - is standard input."
    ),
    Option(["--answer"], default="", metavar="TEXT", help="Answer to the question."),
)

add_command(
    app,
    "inbox",
    "inbox:inbox",
    "List proposals that wait for a decision, the longest waiting first.",
    WATCH,
    Option(["--all", "every"], is_flag=True, help="All projects, not only this one."),
)

add_command(
    app,
    "watch",
    "watching:watch_run",
    "Attach to a run and show what it does, until Ctrl-C. Leaving stops nothing.",
    RUN,
)

# Runs: list, show and change them.

runs = add_group(
    app,
    "runs",
    "Manage the runs of a project; without a command, list them, latest first.",
    WATCH,
    *COMMON,
    work="run_list:list_runs",
)
add_command(
    runs,
    "show",
    "lists:show_run",
    "Show one run: its loops, and what waits for a decision.\n\n"
    "--diff shows what its commands changed in files, as recorded; in a pipe `patch -p1` takes it.",
    RUN,
    Option(["--full"], is_flag=True, help="Show long proposals in full."),
    Option(["--turns"], is_flag=True, help="Show its turns too, with each command and how it ended."),
    Option(["--diff"], is_flag=True, help="Show only what its commands changed in files."),
    Option(["--packet"], metavar="N", type=AT_LEAST_0, default=0, help="Show only the packet of turn N."),
)
add_command(runs, "list", "run_list:list_runs", "List the runs, as without a command.")
add_command(runs, "abort", "lists:abort_run", "End the active loop of a run.", RUN)
add_command(
    runs,
    "remove",
    "steering:remove_run",
    "Remove a run with everything that belongs to it alone; its loops must have ended.",
    RUN,
)
add_command(
    runs,
    "export",
    "documents:export_run",
    "Write a run as one JSON document, which `runs import` reads, or as a page.",
    RUN,
    Option(
        ["-o", "--output"], metavar="FILE", required=True, help="The file, which is replaced; - is standard output."
    ),
    Option(["--without-files"], is_flag=True, help="Leave out the contents of project files."),
    Option(["--html"], is_flag=True, help="Write a page to look at the run instead, which needs no server."),
)
add_command(
    runs,
    "import",
    "documents:import_run",
    "Make a run of a document of `runs export`, or of a trajectory of Refact. Nothing in it goes on by itself.",
    Argument(["file"], metavar="FILE", help="The document; - is standard input."),
    Option(["--run"], default="", metavar="ALIAS", help="Alias of the new run [that of the document, if it is free]"),
)

add_command(
    app,
    "explain",
    "explaining:explain",
    "Show what a packet consists of: the budget, each piece with its tokens and why it is in, and where it leaves "
    "the prefix of the turn before.",
    RUN,
    Argument(["turn"], metavar="[TURN]", default=0, type=AT_LEAST_0, help="Number of the turn [the latest]"),
    Option(["--next", "following"], is_flag=True, help="Preview the packet of the next turn; writes nothing."),
    Option(["--full"], is_flag=True, help="Show all pieces, not only the largest ones."),
)
add_command(
    app,
    "replay",
    "explaining:replay",
    "Assemble the packet of every stored turn again, and show those that differ from what was sent. Exits with 1 "
    "if some do.",
    RUN,
)

add_command(
    app,
    "eval",
    "evaluating:evaluate",
    "Run each task of a file with each of its variants, and have a check decide: success, turns, tokens, money, cache "
    "share. Exits with 1 if a check failed.",
    Argument(["file"], metavar="FILE", type=FILE, help="Tasks and variants, in TOML: docs/evals.md."),
    Option(["-m", "--model"], metavar="MODEL", help="Model of all variants [that of each]"),
    Option(["--only"], metavar="NAME", multiple=True, help="Only this task or variant; repeatable."),
    Option(
        ["--repeat"],
        metavar="N",
        type=click.IntRange(1, REPEATS_MAX),
        default=1,
        help="How often each task is done [1]",
    ),
    Option(
        ["--parallel"], metavar="K", type=click.IntRange(1, PARALLEL_MAX), default=1, help="How many run at a time [1]"
    ),
    Option(["--output"], metavar="DIR", type=FOLDER, help="Keep the copies of projects, and the runs, in this folder."),
    Option(["--html"], metavar="FILE", type=FILE, help="Write the report as one page, too."),
    common=WITHOUT_PROJECT,
)
add_command(
    app,
    "undo",
    "changes:undo",
    "Take back what a turn changed in files, if they are still what it made of them. Exits with 1 if some files "
    "stay as they are, with 5 if all do.",
    RUN,
    Argument(["turn"], metavar="[TURN]", default=0, type=AT_LEAST_0, help="Number of the turn [the latest]"),
)
add_command(
    app,
    "fork",
    "steering:fork_run",
    "Fork a run: make one that starts with its state.",
    RUN,
    Option(["--to"], default="", metavar="ALIAS", help="Alias of the fork; by default one is generated."),
    Option(["--turn"], default=0, metavar="N", type=AT_LEAST_0, help="Begin at the end of this turn."),
)
add_command(
    app,
    "rename",
    "steering:rename_run",
    "Change the alias of a run; its loops must have ended.",
    RUN,
    Argument(["new"], metavar="NEW", help="The new alias."),
)
add_command(
    app,
    "inject",
    "steering:inject_message",
    "Send the model a message for its next turn, without giving it a task.",
    RUN,
    Argument(["message"], metavar="MESSAGE", help="Message to the model; - reads standard input."),
)
add_command(
    app,
    "config",
    "steering:configure_run",
    "Show or change the settings of a run. Limits replace all existing limits of the run.",
    RUN,
    Option(
        ["--model"],
        metavar="MODEL",
        help="Alias of the model for later loops, or vendor/model.",
        shell_complete=offering("completing:models"),
    ),
    Option(["--temperature"], metavar="T", type=click.FloatRange(0, 2), help="Sampling temperature."),
    Option(["--persona-file"], metavar="FILE", type=FILE, help="Persona; before the first turn only."),
    Option(["--title"], help="What the run is called in lists; empty: as a model or the first prompt says."),
    Option(["--context-limit"], metavar="TOKENS", type=AT_LEAST_0, help="Context window; 0: the model's."),
    *LIMITS,
    Option(["--yolo/--no-yolo"], default=None, help="Accept every proposal of the run."),
    CALLS,
)

# Plans.

_PLAN_ID: Final = Option(["--plan-id"], default="", metavar="ID", help="Which plan [main]")
_TEXT_FILE: Final = Option(["--file"], metavar="FILE", type=FILE, help="Read the text from this file.")

plan = add_group(app, "plan", "Manage the plans of a run: what it intends to do, and its progress.")
add_command(
    plan,
    "show",
    "plans:show_plans",
    "Show the plans of a run, or one of them.",
    RUN,
    Option(["--plan-id"], default="", metavar="ID", help="Only this plan [all; with --version main]"),
    Option(["--version"], default=0, metavar="N", type=AT_LEAST_0, help="This version of it [the latest]"),
)
add_command(plan, "list", "plans:show_plans", "List the plans of a run.", RUN)
add_command(
    plan,
    "set",
    "plans:set_plan",
    "Create a plan, or replace it with a new version.\n\n"
    "An item is an object with content, priority (high, medium, low), status (pending, in_progress, completed, "
    "cancelled, blocked) and, optionally, evidence_paths.",
    RUN,
    Argument(["text"], metavar="[TEXT]", required=False, help="The plan, in Markdown; - reads standard input."),
    _TEXT_FILE,
    Option(["--items"], metavar="JSON", help="A plan of items: a JSON array; - reads standard input."),
    Option(["--mode"], default="", metavar="WORD", help="The mode in which it was written."),
    _PLAN_ID,
)
add_command(
    plan,
    "update",
    "plans:update_plan",
    "Append to a plan without changing what it says.",
    RUN,
    Argument(["text"], metavar="[TEXT]", required=False, help="What to add; - reads standard input."),
    _TEXT_FILE,
    _PLAN_ID,
)
add_command(plan, "rm", "plans:remove_plan", "Remove a plan; its versions can still be shown.", RUN, _PLAN_ID)

# Schedules.

_ID: Final = Argument(["schedule_id"], metavar="ID", help="Id of the schedule: letters, digits, _ and -.")

schedules = add_group(
    app, "schedules", "Manage the schedules of a run: what the agent does again and again, without anybody who asks."
)
add_command(schedules, "list", "schedules:list_schedules", "List the schedules of a run, with times in UTC.", RUN)
add_command(
    schedules,
    "add",
    "schedules:add_schedule",
    "Add a schedule, or replace the one with this id. With a prompt, it begins a loop each time; without one, the "
    "model only reads in its next turn that the time has come.",
    RUN,
    _ID,
    Argument(["prompt"], metavar="[PROMPT]", default="", help="What to do each time; - reads standard input."),
    Option(["--cron"], metavar="EXPRESSION", default="", help="When: five fields, such as '0 3 * * 1-5'."),
    Option(["--tz"], metavar="ZONE", default="", help="Time zone of --cron, such as Europe/Berlin [UTC]"),
    Option(["--every"], metavar="TIME", default="", help="How often: such as 90s, 10m, 2h or 1d."),
    Option(["--mode"], type=click.Choice(["ask", "act"]), help="Mode of its loops [that of the latest task]"),
    Option(["-m", "--model"], metavar="MODEL", default="", help="Model of its loops [that of the run]"),
    Option(["-y", "--yolo"], is_flag=True, help="Its loops accept every proposal without asking."),
    Option(["--new-run"], is_flag=True, help="Each time begins a run of its own, with this one's settings and rules."),
    Option(["--overlap"], is_flag=True, help="With --new-run: also while the run before still works."),
    WITHOUT,
    *LIMITS,
)
add_command(schedules, "pause", "schedules:pause_schedule", "Pause a schedule; what it has begun goes on.", RUN, _ID)
add_command(schedules, "resume", "schedules:resume_schedule", "Let a paused schedule go on.", RUN, _ID)
add_command(
    schedules, "runs", "schedules:list_scheduled", "List the runs that a schedule has begun, and why not.", RUN, _ID
)
add_command(schedules, "remove", "schedules:remove_schedule", "Remove a schedule; what it has begun goes on.", RUN, _ID)

add_administration(app)

# Models.

_ALIAS: Final = Argument(
    ["alias"], metavar="ALIAS", help="Alias of the model.", shell_complete=offering("completing:models")
)
_OF_MODEL: Final = (
    Option(["--context"], type=AT_LEAST_0, metavar="TOKENS", help="Length of its context window; 0: ask its vendor."),
    Option(["--output"], type=AT_LEAST_0, metavar="TOKENS", help="Longest reply that it writes; 0: ask its vendor."),
    Option(
        ["--price"],
        metavar="IN/CACHED/OUT",
        help="What a million tokens of each kind cost, in US dollars, where its vendor tells no cost.",
    ),
    Option(["--tools/--no-tools"], default=None, help="Whether it calls tools natively."),
    Option(["--images/--no-images"], default=None, help="Whether it reads images."),
    Option(["--reasoning/--no-reasoning"], default=None, help="Whether it reasons before it answers."),
    Option(["--response-format/--no-response-format"], default=None, help="Whether it answers by a JSON Schema."),
    Option(["--prefill/--no-prefill"], default=None, help="Whether it continues a message of its own."),
)

models = add_group(
    app,
    "models",
    "Manage models; without a command, list them and whether each can be called now.",
    *WITHOUT_PROJECT,
    work="models:list_models",
)
add_command(models, "list", "models:list_models", "List the models, as without a command.", common=WITHOUT_PROJECT)
add_command(
    models,
    "add",
    "models:add_model",
    "Add a model, or change which model an alias names. What you leave out is asked from its vendor.",
    Argument(["alias"], metavar="ALIAS", help="Name that runs use."),
    Argument(["vendor_model"], metavar="VENDOR/MODEL", help="The vendor and its own name for the model."),
    *_OF_MODEL,
    common=WITHOUT_PROJECT,
)
add_command(
    models,
    "set",
    "models:set_model",
    "Change the properties of a model; what you leave out stays as it is.",
    _ALIAS,
    Option(["--model", "vendor_model"], metavar="VENDOR/MODEL", help="Another vendor or model."),
    *_OF_MODEL,
    common=WITHOUT_PROJECT,
)
add_command(
    models,
    "remove",
    "models:remove_model",
    "Remove a model, so that runs can no longer name it.",
    _ALIAS,
    common=WITHOUT_PROJECT,
)

# Services, and what looks after them.

add_command(
    app,
    "init",
    "initializing:init",
    "Find a model server on this host, and write it into your turnwright.toml.\n\n"
    "--clients instead makes everybody with a token a member of the project, --no-clients takes that back.",
    Option(["--url"], metavar="URL", help="Ask this server instead, such as http://127.0.0.1:8080/v1."),
    Option(["--force"], is_flag=True, help="Replace the file that there is."),
    Option(["--clients/--no-clients"], default=None, help="Whether tokens for clients may use this project."),
    common=(PROJECT, SERVER),
)
add_command(
    app,
    "project",
    "steering:configure_project",
    "Show or change the settings of the project.",
    Option(
        ["--assembly"],
        type=click.Choice(["packet", "transcript", "default"]),
        help="How new runs are sent to the model, unless their task says; default: as TURNWRIGHT_ASSEMBLY says.",
    ),
    Option(["--force"], is_flag=True, help="Take a folder of the system or a home as a project, too."),
    Option(["--git"], metavar="URL", help="Clone this repository, where the executor may, and show that project."),
    Option(["--ref"], metavar="NAME", default="", help="Branch or tag to clone; default: that of HEAD."),
)
add_command(
    app,
    "acp",
    "acp:serve",
    "Be the agent of an editor, by the Agent Client Protocol on standard input and output.",
    Option(["-m", "--model"], metavar="MODEL", help="Model of new sessions: an alias, or vendor/model."),
    common=(SERVER,),
)
add_mcp(app)
add_command(
    app,
    "doctor",
    "doctor:doctor",
    "Show what is configured, which services answer, and what is missing.",
    common=WITHOUT_PROJECT,
)
add_command(
    app,
    "serve",
    "serving:serve",
    "Run all four services, or those named, until SIGINT or SIGTERM.",
    Option(["--ui"], is_flag=True, help="Also do what `turnwright ui` does."),
    Option(["--only"], metavar="NAME", multiple=True, help="Run this service; repeatable."),
    Option(
        ["--listen"],
        metavar="[NAME=]ADDR",
        multiple=True,
        help="Address to listen on; without NAME, the executor's. `http=`: none for HTTP.",
    ),
    *(
        Option([f"--{peer}"], metavar="ADDR", help=f"Address of {article} {peer} that runs elsewhere.")
        for article, peer in (("a", "store"), ("an", "assembler"), ("a", "provider"))
    ),
    DATABASE,
    common=(),
)
add_command(
    app,
    "ui",
    "page:show_page",
    "Print the address of the page that shows runs, with a token in it that ends in a day, and open it at a terminal.",
    Option(
        ["--principal"],
        metavar="NAME",
        default="",
        help="Who looks at it, with the rights that they have; has to be said with --server "
        "[page-LOGIN, an owner of the projects of this home]",
    ),
    Option(["--url"], metavar="URL", default="", help="Where HTTP is served [where the running services serve it]"),
    common=(SERVER,),
)

_BACKUP: Final = (Argument(["file"], metavar="FILE", type=FILE, help="The backup."), DATABASE, AS_JSON)

store = add_group(app, "store", "The store's database.")
add_command(
    store,
    "backup",
    "storing:backup_store",
    "Back up the store's database into a new file, also while the store is running.",
    *_BACKUP,
    common=(),
)
add_command(
    store,
    "restore",
    "storing:restore_store",
    "Restore a backup into an empty database, SQLite or PostgreSQL.",
    *_BACKUP,
    common=(),
)

add_rights(app)
add_command(
    app,
    "completion",
    "completing:print_script",
    "Print a script with which a shell completes commands, options, and names of runs and models.",
    Argument(["shell"], metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]), help="bash, zsh or fish."),
    common=(),
)
add_command(
    app,
    "demo",
    "demonstration:demo",
    "Show a complete run on a small project, without a key or a network.",
    Option(["--source"], hidden=True, type=click.Path(path_type=Path, exists=True, file_okay=False)),
    common=(),
)
