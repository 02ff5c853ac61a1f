"""`act`, `ask` and `resolve`: give a run a task or a decision, follow the loop, and exit with its result."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from click import UsageError
from msgspec import Struct
from msgspec.structs import replace
from turnwright.executor.v1 import task_pb2
from turnwright.types.v1 import cursor_pb2, proposal_pb2, settings_pb2

from turnwright_cli.changes import changes_of
from turnwright_cli.editing import contents_from, edited_proposal
from turnwright_cli.effects import TITLE_CHARS_MAX, effect_title, how_to_accept
from turnwright_cli.exit_codes import EXIT_OF_LOOP, FAILED, advice_after, usage
from turnwright_cli.following import Follower, FollowResult, ShownRun
from turnwright_cli.interrupts import Interrupts
from turnwright_cli.invocation import CliSettings, Invocation, budget_of, call_style
from turnwright_cli.output import complain, console, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.prompt_edits import prompt_edits_of
from turnwright_cli.prompting import PromptDecision, Prompter, cut_comment
from turnwright_cli.reading import given_text, text_in
from turnwright_cli.render import TextScreen
from turnwright_cli.run_list import full_alias
from turnwright_cli.screen import JsonScreen, Screen
from turnwright_cli.session import announce, open_session
from turnwright_client import Client, QueuedLoop, pending_proposals
from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.errors import MissingError, Reason, TurnwrightError
from turnwright_core.limits import PROMPT_BYTES_MAX
from turnwright_core.models import Effort, Reasoning
from turnwright_core.runs import LOOP_ENDED
from turnwright_core.wire.runs import reasoning_to_pb

if TYPE_CHECKING:
    from turnwright_cli.keyboard import Keyboard

REJOINS_MAX: Final = 5
"""How often a command continues with another stack after the one that it had joined has ended."""
_GONE: Final = (Reason.SERVICE_UNAVAILABLE, Reason.DRAINING)


def reasoning_of(given: str | None) -> settings_pb2.Reasoning | None:
    """The level or number of tokens for reasoning. Raises FailureError for anything else."""
    if given is None:
        return None
    if given.isdecimal() and 0 < int(given) < 2**31:
        return settings_pb2.Reasoning(tokens=int(given))
    word = get_args(Effort)
    if given not in word:
        raise usage(f"--reasoning takes {', '.join(word)}, or a number of tokens; not {given!r}.")
    return reasoning_to_pb(Reasoning(given))  # type: ignore[arg-type] # it is one of the words


def answer_format_of(file: str | None) -> settings_pb2.ResponseFormat | None:
    """The response format from a file with a JSON Schema. Raises FailureError if it cannot be read."""
    if file is None:
        return None
    return settings_pb2.ResponseFormat(
        schema="" if file == "-" else text_in(Path(file), "answer schema", PROMPT_BYTES_MAX)
    )


class LoopToFollow(Struct, frozen=True):
    """What to follow. `decided` is the proposal that was just decided, `asked` the one to ask about first."""

    queued: QueuedLoop
    decided: str = ""
    asked: str = ""


Begin = Callable[[Client], Awaitable[LoopToFollow]]
"""Queues a task or carries out a decision; safe to repeat."""


async def act(
    call: Invocation,
    *,
    prompt: str,
    model: str | None,
    run: str | None,
    fork: bool,
    yolo: bool,
    calls: str | None,
    without: Collection[str],
    reasoning: str | None,
    answer_schema: str | None,
    image: Collection[str],
    assembly: str | None,
    prompt_edits: str | None,
    project_instructions: bool | None,
    summaries: bool | None,
    private: bool = False,
    place: str | None = None,
    asks: bool = False,
    **limits: object,
) -> int:
    run = run or call.settings.run
    if missing := [] if call.settings.server else [path for path in image if not (Path(call.root) / path).is_file()]:
        raise usage(f"There is no image {safe_line(missing[0])} in {call.root}.")
    if fork and not run:
        raise UsageError("--fork needs --run.")
    nobody_answers = yolo and (call.as_json or not has_terminal())
    settings = settings_pb2.LoopSettings(
        model=model or "",
        yolo=yolo,
        no_interaction="interaction" in without or nobody_answers,
        no_repo="repo" in without,
        no_web="web" in without,
        no_proposals="proposals" in without,
        budget=budget_of(**call.defaults.limits(**limits)),
        reasoning=reasoning_of(reasoning or call.defaults.reasoning),
        response_format=answer_format_of(answer_schema),
        images=image,
        assembly=settings_pb2.Assembly.Value(f"ASSEMBLY_{(assembly or 'unspecified').upper()}"),
        project_instructions=project_instructions,
        summaries=summaries,
    )
    return await run_task(
        call.settings,
        call.root,
        read_prompt(prompt),
        settings=settings,
        run_settings=settings_pb2.RunSettings(
            calls=call_style(calls) or settings_pb2.CALL_STYLE_UNSPECIFIED,
            private=private,
            place=settings_pb2.Place.Value(f"PLACE_{(place or 'unspecified').upper()}"),
        ),
        default_model=call.defaults.model or "",
        asks=asks,
        as_json=call.as_json,
        run=run,
        fork=task_pb2.TaskFork() if fork else None,
        edits=prompt_edits_of(prompt_edits),
    )


ask: Final = partial(act, asks=True)


async def _default_model(client: Client, project: str, run: str, model: str) -> str:
    """The model that files name, for a new run: others keep their own."""
    if run and model:
        with contextlib.suppress(MissingError):
            await client.get_run(project, run)
            return ""
    return model


async def _check_vendor(client: Client, model: str) -> None:
    """Raises FailureError, before a run is made, if the vendor of the model is not set up."""
    if model and "/" not in model:
        model = next((one.vendor_model for one in await client.list_models() if one.alias == model), "")
    vendor = model.partition("/")[0]
    for one in (await client.get_status()).vendors if vendor else ():
        if one.name == vendor and not one.configured:
            raise usage(f"{safe_line(one.name)}: {safe_line(one.problem)}")


async def run_task(
    cli_settings: CliSettings,
    root: str,
    prompt: str,
    *,
    settings: settings_pb2.LoopSettings,
    run_settings: settings_pb2.RunSettings,
    run: str = "",
    default_model: str = "",
    asks: bool = False,
    as_json: bool = False,
    fork: task_pb2.TaskFork | None = None,
    edits: Sequence[PromptEdit] = (),
) -> int:
    """Give the task to a run, a new one without a name, and follow it. Returns the exit code."""
    request_id = secrets.token_hex(16)

    async def begin(client: Client) -> LoopToFollow:
        project = (await client.init_project(root)).name
        run_settings.model = settings.model or await _default_model(client, project, run, default_model)
        await _check_vendor(client, run_settings.model)
        give = partial(client.ask if asks else client.act, project, prompt, run=run, request_id=request_id)
        return LoopToFollow(await give(settings=settings, run_settings=run_settings, fork=fork, edits=edits))

    return await _follow(cli_settings, begin, as_json=as_json)


async def resolve(
    call: Invocation,
    *,
    run: str,
    path: str,
    accept: bool | None,
    reason: str,
    edit: bool,
    content_file: Collection[str],
    answer: str,
) -> int:
    """Decide on a proposal, or ask for a decision, then follow the loop. Raises FailureError, UsageError."""
    changes, request_id = (edit, content_file, answer), secrets.token_hex(16)
    decision: PromptDecision | None = None
    if accept is not None or any(changes) or reason or call.as_json or not has_terminal():
        accepts = _accepts(accept, reason, sum(map(bool, changes)))
        decision = PromptDecision(accepts, cut_comment(reason), contents_from(content_file), answer, edits=edit)

    async def begin(client: Client) -> LoopToFollow:
        nonlocal decision, path, run
        project = (await client.init_project(call.root)).name
        run = await full_alias(client, project, run)
        if decision is None:
            return await waiting_loop(client, project, run, path)
        path = path or await _only_proposal(client, project, run)
        if decision.edits:
            contents = await edited_proposal(client, project, run, path)
            decision = replace(decision, contents=contents, edits=False)
        resolved = await client.resolve(
            project,
            run,
            path,
            accept=decision.accept,
            comment=decision.comment,
            contents=decision.contents,
            answer=decision.answer,
            request_id=request_id,
        )
        queued = QueuedLoop(project, run, resolved.run.loop.sequence, resolved.event_cursor, resolved.run)
        return LoopToFollow(queued, path)

    return await _follow(call.settings, begin, as_json=call.as_json)


def _accepts(accept: bool | None, reason: str, changed: int) -> bool:
    """Whether the options accept. Raises UsageError if they contradict each other."""
    if changed > 1:
        raise UsageError("Use only one of --edit, --content-file and --answer.")
    if accept is None and not changed:
        raise UsageError("Add --accept or --reject: without a terminal nobody can be asked.")
    if accept is False and changed:
        raise UsageError("--edit, --content-file and --answer accept; --reject does not.")
    if accept is not False and reason:
        raise UsageError("--reason goes with --reject.")
    return accept is not False


async def waiting_loop(client: Client, project: str, run: str, path: str = "") -> LoopToFollow:
    """The loop that waits for a decision, about the proposal at this path first. Raises FailureError if none waits."""
    state = (await client.get_run(project, run)).run
    found = await _waiting(client, project, run)
    if path and path not in found:
        raise usage(f"{safe_line(path)} does not wait for a decision. What waits in run {run}:\n{_listed(found)}")
    queued = QueuedLoop(project, run, state.loop.sequence, cursor_pb2.EventCursor(), state)
    return LoopToFollow(queued, asked=path or found[0])


async def _only_proposal(client: Client, project: str, run: str) -> str:
    found = await _waiting(client, project, run)
    if len(found) > 1:
        raise usage(f"More than one proposal waits; name one:\n{_listed(found)}")
    return found[0]


async def _waiting(client: Client, project: str, run: str) -> list[str]:
    """The paths of the proposals that wait. Raises FailureError if there are none."""
    if found := [proposal.path for proposal in await pending_proposals(client, project, run)]:
        return found
    raise usage(f"Nothing in run {run} waits for a decision. `turnwright runs` lists the runs of this project.")


def _listed(paths: Iterable[str]) -> str:
    return "\n".join(f"  {safe_line(path)}" for path in paths)


async def _follow(settings: CliSettings, begin: Begin, *, as_json: bool) -> int:
    """Begin, and follow to the end. If the stack that we joined ends, continue with another one."""
    screen, keyboard = _screen(as_json=as_json)
    person = Prompter(keyboard, screen.note) if keyboard else None
    begun: LoopToFollow | None = None
    place = ShownRun()
    with keyboard.watched() if keyboard else Interrupts().entered() as interrupts:
        for attempt in range(REJOINS_MAX + 1):
            async with open_session(settings) as session:
                if begun is None:
                    await announce(session)
                try:
                    # Repeated after a stack has died: it is the same request, and its run is worked on again.
                    with keyboard.released() if keyboard else contextlib.nullcontext():
                        again = await begin(session.client)
                    begun = begun or again
                    follower = Follower(session.client, screen, person, interrupts, place)
                    followed = await follower.follow(begun.queued, begun.decided, begun.asked)
                    if followed.loop.status in LOOP_ENDED:
                        changes = await changes_of(session.client, followed.run, followed.loop.sequence)
                        if followed.loop.settings.mode == settings_pb2.MODE_ACT or not changes.is_empty:
                            screen.changed(changes)
                    return _exit(followed)
                except TurnwrightError as error:
                    if not session.joined or error.reason not in _GONE or attempt == REJOINS_MAX:
                        raise
            complain("the command that ran the services has ended; continuing with other services")
    raise AssertionError("the last attempt returns or raises")


def _screen(*, as_json: bool) -> tuple[Screen, Keyboard | None]:
    if as_json:
        return JsonScreen(write_line), None
    if not has_terminal():
        return TextScreen(console()), None
    from turnwright_cli.keyboard import Keyboard

    screen = TextScreen(console(), session=True)
    return screen, Keyboard(screen.pause)


def has_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _exit(followed: FollowResult) -> int:
    """The exit code of a followed loop; prints how to continue if a proposal waits."""
    own = [(followed.run.run, proposal) for proposal in followed.undecided]
    if undecided := [*own, *followed.of_agents]:
        complain("a proposal waits for a decision. Continue with")
        for run, proposal in undecided:
            print(f"  {_how_to_resolve(run, proposal)}", file=sys.stderr)
    if advice := advice_after(followed.loop.reason):
        complain(advice)
    return EXIT_OF_LOOP.get(followed.loop.status, FAILED)


def _how_to_resolve(run: str, proposal: proposal_pb2.Proposal) -> str:
    command = f"turnwright resolve {shlex.quote(run)} {shlex.quote(proposal.path)}"
    return f"{safe_line(command)} {how_to_accept(proposal)} (or --reject): {effect_title(proposal, TITLE_CHARS_MAX)}"


def read_prompt(argument: str) -> str:
    """The prompt; `-` reads standard input. Raises FailureError if it is empty, too long or not text."""
    return given_text(
        argument,
        "prompt",
        PROMPT_BYTES_MAX,
        empty="Say what to do, or give `-` and write it to standard input.",
        long="Put the long part into a file and name that.",
    )
