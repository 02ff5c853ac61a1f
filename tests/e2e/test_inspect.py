"""The file of `eval` as a task of Inspect, through its own command line. Needs the extra `inspect`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from e2e.cli_process import Bench

pytestmark = [
    pytest.mark.skipif(not find_spec("inspect_ai"), reason="it needs pip install -e '.[inspect]'"),
    pytest.mark.timeout(300),
]
FILE = """
[[variant]]
name = "one"
model = "m"
[[task]]
name = "done"
project = "p"
prompt = "Do it."
check = "test -e done"
[[task]]
name = "not-done"
project = "p"
prompt = "Do something else."
check = "test -e other"
"""


def test_inspect_scores_by_the_check(tmp_path) -> None:
    bench = Bench(tmp_path)
    bench.script("m", "<sh>touch done</sh>", '<update status="200">Done.</update>')
    (tmp_path / "p").mkdir()
    (tmp_path / "evals.toml").write_text(FILE)
    page = (Path(__file__).parents[2] / "docs" / "evals.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n# inspected.py\n(.*?)```", page, re.DOTALL)[1]
    (tmp_path / "inspected.py").write_text(program.replace('"packet-tags"', '"one"'))
    logs = tmp_path / "logs"
    command = [
        *(sys.executable, "-m", "inspect_ai", "eval", "inspected.py", "--model", "none", "--display", "plain"),
        *("--log-dir", str(logs), "--log-format", "json"),
    ]
    done = subprocess.run(command, env=bench.env(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = (json.loads(file.read_text()) for file in logs.glob("*.json"))
    assert log["status"] == "success", log.get("error")
    scores = {one["id"]: one["scores"]["check"] for one in log["samples"]}
    assert {name: score["value"] for name, score in scores.items()} == {"done": "C", "not-done": "I"}
    assert scores["not-done"]["explanation"] == "exit_1:500"
    assert scores["done"]["metadata"]["turns"] == 2
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 0.5
    usages = [one["output"]["usage"] for one in log["samples"]]
    assert all(usage["total_tokens"] > usage["output_tokens"] > 0 for usage in usages)
