"""`eval`: runs each task of a file with each variant, in a copy of its project, and has a check decide."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace
from turnwright.types.v1 import budget_pb2, loop_pb2, settings_pb2

from turnwright_cli.eval_file import LIMITS, EvalFile, EvalTask, Variant, read_eval_file
from turnwright_cli.eval_report import RESULTS, VARIANTS, EvalResult, page_of, reports_of
from turnwright_cli.exit_codes import DIFFERENT, DONE, EXIT_OF_LOOP, FAILED, FailureError, failure_of, usage
from turnwright_cli.interrupts import Interrupts, unless_stopped
from turnwright_cli.invocation import Invocation, budget_of, call_style
from turnwright_cli.output import is_pipe, row_line, show_table, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.session import announce, open_session
from turnwright_cli.tasks import reasoning_of
from turnwright_client import Client, QueuedLoop
from turnwright_core.errors import TurnwrightError

STOPPED: Final = EXIT_OF_LOOP[499]
_IN_COPY: Final = shutil.ignore_patterns("__pycache__")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARS_MAX: Final = 40


class _Job(Struct, frozen=True):
    """A task to do once with a variant, in a folder that is made then."""

    task: EvalTask
    variant: Variant
    repetition: int
    source: Path
    copy: Path

    @property
    def result(self) -> EvalResult:
        """Before anything was done."""
        return EvalResult(task=self.task.name, variant=self.variant.name, repetition=self.repetition)


async def evaluate(
    call: Invocation,
    *,
    file: Path,
    model: str | None,
    only: Sequence[str],
    repeat: int,
    parallel: int,
    output: Path | None,
    html: Path | None,
) -> int:
    """Exits with 0 if every check passed. Raises FailureError for a mistake in what was given, before anything runs."""
    read = _with_models(read_eval_file(file, only), model or "", call.defaults.model or "")
    _check_folder_of(html)
    results: list[EvalResult] = []
    async with contextlib.AsyncExitStack() as leaving:
        jobs = list(_jobs(read, repeat, leaving.enter_context(_copies(output))))
        session = await leaving.enter_async_context(open_session(call.settings))
        await announce(session)
        interrupts = leaving.enter_context(Interrupts().entered())
        work = _Work(session.client, interrupts, keeps=output is not None)
        show = _Progress(len(jobs), as_json=call.as_json)
        async with contextlib.aclosing(work.done(jobs, parallel)) as done:
            async for result in done:
                results.append(result)
                show(result)
    _report(call, file, read, results, html)
    if interrupts.asked.is_set():
        return STOPPED
    if work.failure:
        raise work.failure
    return DONE if all(one.success for one in results) else DIFFERENT


def _check_folder_of(page: Path | None) -> None:
    if page and not page.absolute().parent.is_dir():
        raise usage(f"--html: there is no folder {page.absolute().parent}.")


def _with_models(read: EvalFile, model: str, default: str) -> EvalFile:
    """Each variant with the model that it is run with. Raises FailureError if one has none."""
    variants = tuple(replace(one, model=model or one.model or default) for one in read.variants)
    if without := [one.name for one in variants if not one.model]:
        raise usage(
            f"The variant {safe_line(without[0])} has no model: add one to it or to [defaults], or use --model."
        )
    for one in variants:
        reasoning_of(one.reasoning)
    return replace(read, variants=variants)


@contextlib.contextmanager
def _copies(output: Path | None) -> Iterator[Path]:
    """The folder for copies of projects: the named one, which is kept, or one for the time of the block."""
    if output is None:
        with tempfile.TemporaryDirectory(prefix="turnwright-eval-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
        is_empty = not any(output.iterdir())
    except OSError as error:
        raise usage(f"--output: {output}: {error.strerror}.") from None
    if not is_empty:
        raise usage(f"--output: {output} is not empty. Name a folder of its own for each evaluation.")
    yield output.resolve()


def _jobs(read: EvalFile, repeat: int, folder: Path) -> Iterator[_Job]:
    """Task by task, so that the variants of one run close to each other, whatever the vendor's pace is then."""
    pairs = itertools.product(enumerate(read.tasks, 1), enumerate(read.variants, 1), range(1, repeat + 1))
    for (task_number, task), (variant_number, variant), repetition in pairs:
        last = _folder_name(task_number, task.name) + (f"-{repetition}" if repeat > 1 else "")
        copy = folder / _folder_name(variant_number, variant.name) / last
        yield _Job(task, variant, repetition, read.source_of(task), copy)


def _folder_name(number: int, name: str) -> str:
    """A name may have any characters, and differ in those alone that a folder's name may not have."""
    return f"{number}-{_NOT_IN_NAMES.sub('-', name)[:_NAME_CHARS_MAX]}"


class _Work:
    """The work on all jobs, some of them at a time. `failure`: the first that could not be carried out."""

    def __init__(self, client: Client, interrupts: Interrupts, *, keeps: bool) -> None:
        self._client = client
        self._interrupts = interrupts
        self._keeps = keeps
        self.failure: FailureError | None = None

    async def done(self, jobs: Sequence[_Job], parallel: int) -> AsyncGenerator[EvalResult, None]:
        """Results in the order in which they are there. After Ctrl-C no job begins, and those at work are aborted."""
        waiting = iter(jobs)
        working: set[asyncio.Task[EvalResult]] = set()
        try:
            while True:
                while len(working) < parallel and not self._is_over and (job := next(waiting, None)):
                    working.add(asyncio.create_task(self._result(job), name=f"eval {job.task.name}"))
                if not working:
                    return
                ended, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                for one in ended:
                    yield one.result()
        finally:
            for one in working:
                one.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    @property
    def _is_over(self) -> bool:
        """What was asked for wrongly, such as an unknown model, is as wrong for every other job."""
        is_usage = self.failure is not None and self.failure.exit_code != FAILED
        return is_usage or self._interrupts.asked.is_set()

    async def _result(self, job: _Job) -> EvalResult:
        result = job.result
        try:
            await asyncio.to_thread(shutil.copytree, job.source, job.copy, symlinks=True, ignore=_IN_COPY)
            queued = await self._begun(job)
            result = replace(result, run=queued.run, folder=str(job.copy) if self._keeps else "")
            loop = await self._ended(queued)
            result = replace(result, **_figures(loop))
            check = await self._check(job, queued)
            if not self._keeps:
                # Nobody can work on it any more without its folder.
                await self._client.delete_run(queued.project, queued.run)
        except (TurnwrightError, OSError, shutil.Error) as error:
            failure = failure_of(error) if isinstance(error, TurnwrightError) else FailureError(FAILED, str(error))
            self.failure = self.failure or failure
            return replace(result, error=failure.message)
        return replace(result, success=not check, check=check)

    async def _begun(self, job: _Job) -> QueuedLoop:
        variant = job.variant
        project = await self._client.init_project(str(job.copy))
        settings = settings_pb2.LoopSettings(
            model=variant.model,
            yolo=True,
            no_interaction=True,
            budget=_budget(variant),
            reasoning=reasoning_of(variant.reasoning),
            assembly=settings_pb2.Assembly.Value(f"ASSEMBLY_{(variant.assembly or 'unspecified').upper()}"),
        )
        run_settings = settings_pb2.RunSettings(
            model=variant.model, calls=call_style(variant.calls) or settings_pb2.CALL_STYLE_UNSPECIFIED
        )
        return await self._client.act(project.name, job.task.prompt, settings=settings, run_settings=run_settings)

    async def _ended(self, queued: QueuedLoop) -> loop_pb2.Loop:
        """The loop at its end, which Ctrl-C brings about."""
        # A rule of the deployment may ask all the same; nobody is there, so that ends the loop.
        following = asyncio.ensure_future(self._client.run_to_end(queued, on_proposal=lambda _: False))
        try:
            ended = await unless_stopped(asyncio.shield(following), self._interrupts)
            if ended is None:
                await self._client.abort(queued.project, queued.run, loop=queued.sequence)
                ended = await following
            return ended.loop
        finally:
            following.cancel()

    async def _check(self, job: _Job, queued: QueuedLoop) -> str:
        """What kept the check from success; empty if it succeeded. It runs as commands of the run do, confined."""
        if self._interrupts.asked.is_set():
            return "aborted"
        seconds, arguments = job.task.check_seconds, {"command": job.task.check}
        running = self._client.call_tool(queued.project, queued.run, "sh", arguments, timeout_s=2 * seconds)
        try:
            async with asyncio.timeout(seconds):
                record = await unless_stopped(running, self._interrupts)
        except TimeoutError:
            # The executor ends the command of a caller that goes away.
            return f"no end within {seconds:g} s"
        if record is None:
            return "aborted"
        return "" if record.status == 200 else record.outcome or str(record.status)


def _budget(variant: Variant) -> budget_pb2.Budget | None:
    return budget_of(**{name: getattr(variant, name) for name in LIMITS})


def _figures(loop: loop_pb2.Loop) -> dict[str, Any]:
    took: timedelta = loop.end_time.ToDatetime() - loop.create_time.ToDatetime()
    return {
        "status": loop.status,
        "reason": loop.reason,
        "turns": loop.turns,
        "prompt_tokens": loop.usage.prompt_tokens,
        "cached_tokens": loop.usage.cached_tokens,
        "completion_tokens": loop.usage.completion_tokens,
        "cost_usd": loop.usage.cost_usd if loop.usage.HasField("cost_usd") else None,
        "seconds": took.total_seconds(),
    }


class _Progress:
    """A line for each result, at once: words at a terminal, fields in a pipe, JSON."""

    def __init__(self, total: int, *, as_json: bool) -> None:
        self._total = total
        self._as_json = as_json
        self._shown = 0
        self._is_pipe = is_pipe()
        if self._is_pipe and not as_json:
            write_line(row_line(column.name for column in RESULTS))

    def __call__(self, result: EvalResult) -> None:
        self._shown += 1
        if self._as_json:
            write_line(json.dumps({"result": to_builtins(result)}))
        elif self._is_pipe:
            write_line(row_line(column.value(result) for column in RESULTS))
        else:
            shown = {column.name: column.shown(result) for column in RESULTS}
            figures = (
                *(f"{self._shown}/{self._total}", shown["check"], shown["task"], shown["variant"]),
                *(f"{shown['turns']} turns", f"{result.prompt_tokens:,} tokens", f"{shown['cached'] or '0%'} cached"),
                *(shown["cost"], f"{shown['seconds']} s", safe_line(shown["why"], 200)),
            )
            write_line("  ".join(filter(None, figures)))


def _report(call: Invocation, file: Path, read: EvalFile, results: list[EvalResult], html: Path | None) -> None:
    """The sums, and the page. Results are in the order of the file there, also if several ran at a time."""
    tasks, variants = [one.name for one in read.tasks], [one.name for one in read.variants]
    ordered = sorted(results, key=lambda one: (tasks.index(one.task), variants.index(one.variant), one.repetition))
    reports = reports_of(variants, ordered)
    if html:
        try:
            html.write_text(page_of(f"Evaluation of {file.name}", ordered, reports), encoding="utf-8")
        except OSError as error:
            print(f"turnwright: {html} was not written: {error.strerror}", file=sys.stderr)
    if call.as_json:
        write_line(json.dumps({"variants": to_builtins(reports)}))
        return
    write_line("")
    show_table(VARIANTS, reports, hint="In brackets: the ratio to the first variant.")
