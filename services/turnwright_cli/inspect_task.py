"""The file of `eval` as a task of Inspect: a run is its solver, the check its scorer. Needs the extra `inspect`.

    from inspect_ai import task
    from turnwright_cli.inspect_task import tasks

    @task
    def packet_tags():
        return tasks("evals.toml", "packet-tags")

Each sample is the command `turnwright eval` in a process of its own, with the settings of this one, because Inspect has
its own event loop. They run one after another: commands at one time share the services of the first, which end with it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

from inspect_ai import Task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from turnwright_cli.eval_file import read_eval_file

_RESULT: Final = "turnwright"
"""Where the solver leaves its result for the scorer, in the store of the sample."""


def tasks(file: str, variant: str, model: str = "") -> Task:
    """The tasks of a file by one of its variants. `model` takes the place of the variant's own.

    Raises FailureError for a mistake in the file.
    """
    path = Path(file).absolute()
    samples = [Sample(id=one.name, input=one.prompt, target=one.check) for one in read_eval_file(path).tasks]
    read_eval_file(path, [variant])
    return Task(dataset=samples, solver=run(path, variant, model), scorer=check(), name=f"{path.stem}-{variant}")


@solver
def run(file: Path, variant: str, model: str) -> Solver:
    """Turnwright's runtime in the place of a loop around a model."""
    turn = asyncio.Lock()

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        del generate
        async with turn:
            result = await _result(file, str(state.sample_id), variant, model)
        usage = ModelUsage(
            input_tokens=result["prompt_tokens"] - result["cached_tokens"],
            input_tokens_cache_read=result["cached_tokens"],
            output_tokens=result["completion_tokens"],
            total_tokens=result["prompt_tokens"] + result["completion_tokens"],
            total_cost=result["cost_usd"],
        )
        state.store.set(_RESULT, result)
        state.output = ModelOutput.from_content("turnwright", f"{result['status']} {result['reason']}")
        state.output.usage = usage
        state.completed = True
        return state

    return solve


@scorer(metrics=[accuracy(), stderr()])
def check() -> Scorer:
    """Whether the check of the task exited with 0."""

    async def score(state: TaskState, target: Target) -> Score:
        del target
        result = state.store.get(_RESULT)
        value = CORRECT if result["success"] else INCORRECT
        return Score(value=value, explanation=result["check"] or "exit code 0", metadata=result)

    return score


async def _result(file: Path, task_name: str, variant: str, model: str) -> dict[str, Any]:
    """What the command reports of one task. Raises RuntimeError, which is Inspect's error of the sample."""
    options = [f"--only={task_name}", f"--only={variant}", "--json", *([f"--model={model}"] if model else [])]
    command = (sys.executable, "-m", "turnwright_cli", "eval", str(file), *options)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        # As Ctrl-C does: the loop is aborted, and the command leaves.
        process.terminate()
        await process.wait()
        raise
    lines = [json.loads(line) for line in out.splitlines()]
    result: dict[str, Any] = next((line["result"] for line in lines if "result" in line), {})
    if not result or result["error"]:
        raise RuntimeError(err.decode(errors="replace").strip() or "turnwright eval said nothing.")
    return result
