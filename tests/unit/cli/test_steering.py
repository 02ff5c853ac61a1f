"""What people see of budgets, settings and the live list of runs."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from turnwright.executor.v1 import event_pb2, executor_service_pb2
from turnwright.runs.v1 import watch_runs_pb2
from turnwright.types.v1 import budget_pb2, loop_pb2, run_pb2, settings_pb2

from turnwright_cli.lists import budget_words, spend_words
from turnwright_cli.render import TextScreen
from turnwright_cli.run_list import ROWS_MAX, overview_line, run_list_table
from turnwright_cli.steering import settings_lines
from turnwright_client import RunList


def overview(alias: str, status: int = 102, proposals: int = 0, second: int = 1, **run) -> run_pb2.RunOverview:
    made = run_pb2.Run(run=alias, status=status, turn=2, update_time=Timestamp(seconds=second), **run)
    return run_pb2.RunOverview(run=made, proposals=proposals)


def run_list(*overviews: run_pb2.RunOverview) -> RunList:
    made = RunList()
    made.apply(watch_runs_pb2.WatchRunsResponse(snapshot=watch_runs_pb2.RunsSnapshot(last=True, runs=overviews)))
    return made


def printed(what) -> list[str]:
    console = Console(file=io.StringIO(), width=120)
    console.print(what)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, "no limit"),
        ({"turns_max": 3}, "3 turns"),
        ({"tokens_max": 20_000, "cost_usd_max": 0.5, "wall_max": timedelta(seconds=90)}, "20,000 tokens, $0.5, 90 s"),
    ],
)
def test_a_budget_is_said_in_words(limits, words):
    assert budget_words(budget_pb2.Budget(**limits)) == words


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        ({}, "0 turns, 0 tokens, 0.0 s"),
        ({"turns": 2, "tokens": 7208, "wall": timedelta(seconds=1.25)}, "2 turns, 7,208 tokens, 1.2 s"),
        (
            {"turns": 3, "tokens": 9000, "lost_tokens": 1024, "cost_usd": 0.125},
            "3 turns, 9,000 tokens (1,024 estimated), $0.1250, 0.0 s",
        ),
    ],
)
def test_spend_is_said_in_words(spent, words):
    assert spend_words(budget_pb2.Spend(**spent)) == words


def test_settings_that_were_not_given_are_named_as_defaults():
    lines = settings_lines(settings_pb2.RunSettings(model="m\x1b[2J"))
    assert lines == [
        "model          m[2J",
        "temperature    default",
        "persona        built in",
        "context limit  model's",
        "budget         no limit",
        "yolo           no",
        "calls          tags",
        "title          default",
    ]


def test_a_run_among_others_is_one_line_without_control_characters():
    loop = loop_pb2.Loop(prompt="Fix\nit\x07.")
    assert overview_line(overview("r", 202, 1, loop=loop)) == "r: 202 waits, 2 turns, 1 to decide: Fix it."


def test_the_live_table_shows_the_latest_run_first():
    lines = printed(run_list_table(run_list(overview("old", 200, summary="Done."), overview("new", 202, 1, second=2))))
    assert [line.split()[0] for line in lines] == ["run", "new", "old"]
    assert lines[1].split() == ["new", "202", "waits", "2", "1"]


def test_a_long_live_table_counts_what_it_leaves_out():
    lines = printed(run_list_table(run_list(*(overview(f"r{number}") for number in range(ROWS_MAX + 3)))))
    assert (len(lines), lines[-1]) == (ROWS_MAX + 2, "and 3 more")


@pytest.mark.asyncio
@pytest.mark.parametrize("is_terminal", [False, True])
async def test_a_notice_is_one_line_with_its_source_in_a_pipe_on_standard_error(is_terminal, capsys):
    console = Console(file=io.StringIO(), width=80, force_terminal=is_terminal, color_system=None)
    notice = event_pb2.Notice(level=event_pb2.NOTICE_LEVEL_WARNING, text="Tests\x1b[31m fail.", source="ci")
    TextScreen(console).show(executor_service_pb2.WatchRunResponse(notice=notice))
    line = "ci: Tests[31m fail.\n"
    told = (line, "") if is_terminal else ("", f"turnwright: {line}")
    assert (console.file.getvalue(), capsys.readouterr().err) == told
