"""`fork`, `rename`, `inject`, `config`, `project` and `runs remove`."""

from __future__ import annotations

from pathlib import Path

from turnwright.types.v1 import run_pb2, settings_pb2
from turnwright_values.types import Assembly

from turnwright_cli.exit_codes import FAILED, FailureError, usage
from turnwright_cli.invocation import Invocation, budget_of, call_style
from turnwright_cli.lists import budget_words, call_words
from turnwright_cli.output import answer
from turnwright_cli.plain import safe_line
from turnwright_cli.reading import given_text, text_in
from turnwright_cli.run_list import TITLE_CHARS, open_run
from turnwright_cli.session import open_session
from turnwright_cli.status_words import run_words
from turnwright_core.errors import PreconditionError
from turnwright_core.limits import COMMENT_BYTES_MAX, PERSONA_BYTES_MAX


async def fork_run(call: Invocation, *, run: str, to: str, turn: int) -> int:
    async with open_run(call, run) as (client, project, found):
        made = await client.fork_run(project, found.run, new_run=to, turn=turn)
    return answer(call, [made], _words(made, f"forked from {found.run} after turn {made.forked_from.turn}"))


async def rename_run(call: Invocation, *, run: str, new: str) -> int:
    async with open_run(call, run) as (client, project, found):
        renamed = await client.rename_run(project, found.run, new)
    return answer(call, [renamed], _words(renamed, f"it was {found.run}"))


async def inject_message(call: Invocation, *, run: str, message: str) -> int:
    text = given_text(message, "message", COMMENT_BYTES_MAX)
    async with open_run(call, run) as (client, project, found):
        injected = await client.inject_message(project, found.run, text)
    return answer(call, [injected], _words(injected.run, "the model reads it in its next turn"))


async def remove_run(call: Invocation, *, run: str) -> int:
    async with open_run(call, run) as (client, project, found):
        await client.delete_run(project, found.run)
    return answer(call, [found], _words(found, "removed"))


async def configure_run(
    call: Invocation,
    *,
    run: str,
    model: str | None,
    temperature: float | None,
    persona_file: Path | None,
    context_limit: int | None,
    yolo: bool | None,
    calls: str | None,
    title: str | None,
    **limits: object,
) -> int:
    patch = settings_pb2.RunSettingsPatch(
        model=model,
        temperature=temperature,
        context_limit=context_limit,
        persona=text_in(persona_file, "persona", PERSONA_BYTES_MAX, may_be_empty=True) if persona_file else None,
        budget=budget_of(**limits),
        yolo=yolo,
        calls=call_style(calls),
        title=title,
    )
    changes = bool(patch.ListFields())
    async with open_run(call, run, reads=not changes) as (client, project, found):
        changed = await client.configure_run(project, found.run, patch) if changes else found
    return answer(call, [changed], *settings_lines(changed.settings))


async def configure_project(call: Invocation, *, assembly: str | None, force: bool, git: str | None, ref: str) -> int:
    if ref and not git:
        raise usage("--ref is for --git URL.")
    wanted = {
        "packet": settings_pb2.ASSEMBLY_PACKET,
        "transcript": settings_pb2.ASSEMBLY_TRANSCRIPT,
        "default": settings_pb2.ASSEMBLY_UNSPECIFIED,
    }
    async with open_session(call.settings) as session:
        root = "" if git else call.root
        try:
            project = await session.client.init_project(
                root, assembly=wanted.get(assembly or ""), force=force, git_url=git or "", git_ref=ref
            )
        except PreconditionError as error:
            if not git:
                raise
            raise FailureError(FAILED, error.message) from None
    chosen = Assembly(project.assembly).name.lower() if project.assembly else "default"
    names = f"project   {safe_line(project.name)}", f"root      {safe_line(project.root)}"
    return answer(call, [project], *names, f"assembly  {chosen}")


def settings_lines(settings: settings_pb2.RunSettings) -> list[str]:
    persona = safe_line(settings.persona, TITLE_CHARS) if settings.HasField("persona") else "built in"
    return [
        f"model          {safe_line(settings.model)}",
        f"temperature    {settings.temperature:g}" if settings.HasField("temperature") else "temperature    default",
        f"persona        {persona}",
        f"context limit  {settings.context_limit:,}"
        if settings.HasField("context_limit")
        else "context limit  model's",
        f"budget         {budget_words(settings.budget)}",
        f"yolo           {'yes' if settings.yolo else 'no'}",
        f"calls          {call_words(settings.calls)}",
        f"title          {safe_line(settings.title) or 'default'}",
    ]


def _words(run: run_pb2.Run, what: str) -> str:
    return f"{safe_line(run.run)}: {run_words(run, knows_holder=False)}; {safe_line(what)}"
