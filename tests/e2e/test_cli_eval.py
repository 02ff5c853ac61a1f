"""`turnwright eval`: tasks with written replies over real HTTP, in which a check decides."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest

from e2e.cli_process import Bench, json_lines
from e2e.terminals import terminal
from evals.played_model import PlayedModel, common, usage_of
from living import is_alive
from turnwright_cli.eval_file import read_eval_file
from turnwright_cli.exit_codes import FailureError

EVALS = Path(__file__).parents[1] / "evals" / "evals.toml"
TASKS = ("off-by-one", "wrong-default", "two-file-refactoring")
VARIANTS = ("packet-tags", "transcript-native")
ONLY = [word for name in (*TASKS, *VARIANTS) for word in ("--only", name)]
WAIT_S = 60


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


@contextmanager
def playing(played: PlayedModel) -> Iterator[dict[str, str]]:
    """Serve the model in a thread; what `eval` needs to call it."""
    loop, ready, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    urls = []

    async def serve() -> None:
        async with played.server() as server:
            urls.append(server.url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(WAIT_S)
        yield played.environment(urls[0])
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(WAIT_S)
        loop.close()


def evals_file(folder: Path, text: str) -> Path:
    """A file with these tables, and a project `p` beside it."""
    (folder / "p").mkdir(exist_ok=True)
    file = folder / "evals.toml"
    file.write_text(text, encoding="utf-8")
    return file


SMALL = """
[[variant]]
name = "one"
model = "m"
[[task]]
name = "a"
project = "p"
prompt = "Do it."
check = "test -e done"
"""


def test_checks_decide_and_variants_are_compared(bench) -> None:
    page, copies = bench.root / "report.html", bench.root / "copies"
    with playing(PlayedModel(EVALS)) as environment:
        done = bench.run(
            "eval", str(EVALS), *ONLY, "--json", "--html", str(page), "--output", str(copies), **environment
        )
    assert (done.returncode, done.stderr) == (0, "")
    *results, last = json_lines(done.stdout)
    results = [one["result"] for one in results]
    assert [(one["task"], one["variant"]) for one in results] == [(task, way) for task in TASKS for way in VARIANTS]
    for one in results:
        assert (one["success"], one["status"], one["check"], one["error"]) == (True, 200, "", "")
        assert one["turns"] >= 3
        assert 1_000 < one["cached_tokens"] < one["prompt_tokens"]
        assert one["completion_tokens"] > 100
        assert one["cost_usd"] > 0
        assert (Path(one["folder"]) / "replies.txt").exists() is False
        assert Path(one["folder"]).is_dir()
    first, second = last["variants"]
    assert set(first["ratios"].values()) == {1.0}
    for name in ("prompt_tokens", "completion_tokens", "turns", "cost_usd"):
        sums = [sum(one[name] for one in results if one["variant"] == variant) for variant in VARIANTS]
        assert [first["totals"][name], second["totals"][name]] == pytest.approx(sums)
        assert second["ratios"][name] == pytest.approx(sums[1] / sums[0])
    share = second["totals"]["cached_tokens"] / second["totals"]["prompt_tokens"]
    assert second["totals"]["cache_share"] == pytest.approx(share)
    assert "<table>" in page.read_text()
    # The sources are as they were: it is copies that were worked on.
    assert "size - 1]" in (EVALS.parent / "tasks/off-by-one/project/paging.py").read_text()


def test_replies_that_do_not_solve_a_task_fail_whatever_the_model_says(bench) -> None:
    lies = {"off-by-one": ['<get path="paging.py"/>', '<update status="200">All tests pass.</update>']}
    with playing(PlayedModel(EVALS, lies)) as environment:
        only = ("--only", "off-by-one", "--only", "wrong-default", "--only", "packet-tags")
        done = bench.run("eval", str(EVALS), *only, **environment)
    assert done.returncode == 1, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[0][:5] == ["task", "variant", "repetition", "check", "status"]
    assert [row[:5] for row in rows[1:3]] == [
        ["off-by-one", "packet-tags", "1", "failed", "200"],
        ["wrong-default", "packet-tags", "1", "passed", "200"],
    ]
    assert rows[1][-1] == "exit_1:500"
    assert rows[3] == [""]
    assert rows[5][:2] == ["packet-tags", "1/2"]
    # Without --output nothing stays.
    assert not json_lines(bench.run("runs", "--json").stdout)


def test_a_check_has_a_time_limit_and_leaves_nothing(bench) -> None:
    bench.script("m", '<update status="200">Done.</update>')
    pid = bench.root / "pid"
    file = evals_file(
        bench.root, SMALL.replace("test -e done", f"echo $$ > {pid}; exec sleep 600") + "check_seconds = 2"
    )
    done = bench.run("eval", str(file), "--json")
    assert done.returncode == 1
    (result, _) = json_lines(done.stdout)
    assert result["result"]["check"] == "no end within 2 s"
    assert not pid.exists() or not is_alive(int(pid.read_text()))


def test_repetitions_and_parallel_ones_are_all_counted(bench) -> None:
    bench.script("m", "<sh>touch done</sh>", '<update status="200">Done.</update>')
    file = evals_file(bench.root, SMALL)
    done = bench.run("eval", str(file), "--json", "--repeat", "3", "--parallel", "2")
    *results, last = json_lines(done.stdout)
    assert done.returncode == 0, done.stdout
    assert sorted(one["result"]["repetition"] for one in results) == [1, 2, 3]
    assert last["variants"][0]["totals"]["passed"] == 3
    assert not (bench.root / "p" / "done").exists()


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag, attrs) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data) -> None:
        self.text += data


def test_the_page_has_no_script_and_names_are_text(bench) -> None:
    bench.script("m", '<update status="200">Done.</update>')
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>\\u202e"
    file = evals_file(bench.root, SMALL.replace('"a"', f'"{hostile}"').replace('"one"', "'\"><svg onload=alert(1)>'"))
    page = bench.root / "page.html"
    done = bench.run("eval", str(file), "--html", str(page))
    assert done.returncode == 1
    text = page.read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    assert tags.seen <= {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "tr", "th", "td"}
    assert not {name for name in tags.attributes if name.startswith("on") or name in ("src", "href")}
    assert "<script>alert(1)</script><img src=x onerror=alert(1)>\\u202e" in tags.text
    assert "\u202e" not in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            SMALL + "[[task]]\nname = 'b'\nproject = 'p'\nprompt = 'x'\nchek = 'true'",
            "[[task]] 2 (b): there is no chek",
        ),
        (
            SMALL.replace('model = "m"', 'asembly = "packet"'),
            "[[variant]] 1 (one): there is no asembly (did you mean assembly?)",
        ),
        (SMALL.replace('model = "m"', 'calls = "odd"'), "[[variant]] 1 (one): calls: "),
        (SMALL.replace('"p"', '"nowhere"'), "[[task]] a: project: "),
        (SMALL.replace('model = "m"', 'assembly = "transcript"\ncalls = "tags"'), "a transcript has native calls"),
        (SMALL + "[[task]]\nname = 'a'\nproject = 'p'\nprompt = 'x'\ncheck = 'true'", "another one with the name a"),
        ("[default]\nmodel = 'm'\n" + SMALL, "there is no default (did you mean defaults?)"),
        ("[defaults]\nmodell = 'm'\n" + SMALL, "[defaults]: there is no modell"),
        (SMALL + "name =\n", "line 10"),
        ("[[variant]]\nname = 'one'\n", "tables [[task]]"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, text, words) -> None:
    with pytest.raises(FailureError) as failure:
        read_eval_file(evals_file(tmp_path, text))
    assert words in failure.value.message
    assert failure.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL + "chek = 'true'", "[[task]] 1 (a): there is no chek (did you mean check?)"),
        (SMALL.replace('model = "m"', ""), "The variant one has no model"),
    ],
)
def test_nothing_runs_where_there_is_a_mistake(bench, text, words) -> None:
    done = bench.run("eval", str(evals_file(bench.root, text)), "--output", str(bench.root / "copies"))
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert not (bench.root / "copies").exists()


def test_only_names_what_is_there_and_output_is_empty(bench) -> None:
    file = evals_file(bench.root, SMALL)
    done = bench.run("eval", str(file), "--only", "on")
    assert (done.returncode, "has no task or variant on" in done.stderr) == (2, True)
    (bench.root / "full").mkdir()
    (bench.root / "full" / "x").touch()
    done = bench.run("eval", str(file), "--output", str(bench.root / "full"))
    assert (done.returncode, "is not empty" in done.stderr) == (2, True)


def test_an_unknown_model_ends_it_at_once(bench) -> None:
    done = bench.run("eval", str(evals_file(bench.root, SMALL)), "--repeat", "3", "--json")
    assert done.returncode == 2
    assert "model" in done.stderr
    assert len(json_lines(done.stdout)) == 2


def test_ctrl_c_aborts_what_runs_and_reports_what_is_done(bench) -> None:
    pid = bench.root / "pid"
    bench.script("m", "<sh>touch done</sh>", '<update status="200">Done.</update>')
    bench.script("slow", f"<sh>touch done; echo $$ > {pid}; exec sleep 600</sh>", '<update status="200">Done.</update>')
    file = evals_file(
        bench.root, SMALL + "[[variant]]\nname = 'two'\nmodel = 'slow'\n[[variant]]\nname = 'three'\nmodel = 'm'\n"
    )
    with bench.running("eval", str(file), "--json") as evaluating:
        evaluating.wait_for('"variant": "one"')
        ended = threading.Event()
        deadline = threading.Timer(WAIT_S, ended.set)
        deadline.start()
        while not (pid.exists() and pid.read_text().strip()) and not ended.wait(0.05):
            pass
        deadline.cancel()
        evaluating.signal(signal.SIGINT)
        assert evaluating.end() == 4, evaluating.lines
        *results, last = json_lines("\n".join(evaluating.lines["out"]))
    assert [(one["result"]["variant"], one["result"]["status"]) for one in results] == [("one", 200), ("two", 499)]
    assert [one["result"]["success"] for one in results] == [True, False]
    assert results[1]["result"]["check"] == "aborted"
    assert [one["totals"]["runs"] for one in last["variants"]] == [1, 1, 0]
    assert last["variants"][2]["ratios"]["turns"] is None
    assert not is_alive(int(pid.read_text()))


def test_a_terminal_shows_each_run_on_a_line(bench) -> None:
    bench.script("m", "<sh>touch done</sh>", '<update status="200">Done.</update>')
    with terminal(bench, "eval", str(evals_file(bench.root, SMALL)), columns=120) as shown:
        shown.expect_text(r"1/1  passed  a  one  2 turns  [\d,]+ tokens  0% cached  \d+\.\d s")
        shown.expect_text("In brackets: the ratio to the first variant.")
        assert shown.end() == 0


def test_the_cache_of_the_played_model_is_a_prefix_in_steps() -> None:
    prompt = "word " * 3_000
    assert usage_of(prompt, [])["prompt_tokens_details"]["cached_tokens"] == 0
    same = usage_of(prompt + "more", [prompt])
    cached = same["prompt_tokens_details"]["cached_tokens"]
    assert cached % 128 == 0
    assert 1_024 <= cached <= same["prompt_tokens"]
    assert usage_of("x" + prompt, [prompt])["prompt_tokens_details"]["cached_tokens"] == 0
    assert (common("abc", "abd"), common("", "a"), common("ab", "a")) == ("ab", "", "a")


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_every_task_is_solved_in_every_variant_and_costs_the_same_each_time(bench) -> None:
    figures = []
    for number in range(2):
        with playing(PlayedModel(EVALS)) as environment:
            command = bench.command("eval", str(EVALS), "--json", "--parallel", str(number + 1))
            env = bench.env(**environment, TURNWRIGHT_HOME=str(bench.root / f"home-{number}"))
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        *results, _ = json_lines(done.stdout)
        of = ("prompt_tokens", "cached_tokens", "completion_tokens", "turns", "cost_usd")
        figures.append(
            {(r["task"], r["variant"]): [r[name] for name in of] for r in (one["result"] for one in results)}
        )
    assert len(figures[0]) == 60
    assert all(3 <= turns <= 8 for *_, turns, _ in figures[0].values())
    assert figures[0] == figures[1]
