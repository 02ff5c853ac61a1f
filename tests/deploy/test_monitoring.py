"""What deploy/telemetry says about metrics is true of the code: their names, their labels, and what raises an alert."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml

from monitoring import FOLDER, alerts, dashboard_queries, labels, metrics
from turnwright_kit import telemetry_names

DEPLOY = FOLDER.parent
RUNBOOK = DEPLOY.parent / "docs" / "runbook.md"
METRIC = re.compile(r"\b(?:turnwright|gen_ai|rpc)_\w+")


def unknown_names(queries: list[str]) -> set[str]:
    """Names in queries that are neither a metric nor a label."""
    used = {name for query in queries for name in METRIC.findall(query)}
    return used - metrics() - labels()


def test_dashboards_alerts_and_scaling_name_metrics_that_exist() -> None:
    adapter = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())["rules"]["external"]
    queries = [*dashboard_queries(), *(rule["expr"] for rule in alerts()), *(rule["metricsQuery"] for rule in adapter)]
    assert unknown_names(queries) == set()
    assert unknown_names(["sum(turnwright_turns_total)"]) == {"turnwright_turns_total"}
    scaled = yaml.safe_load((DEPLOY / "kubernetes/base/executors/autoscaling.yaml").read_text())["spec"]["metrics"]
    assert [one["external"]["metric"]["name"] for one in scaled] == [rule["seriesQuery"] for rule in adapter]


def test_every_metric_of_an_operator_is_in_the_dashboard_or_an_alert() -> None:
    text = " ".join([*dashboard_queries(), *(rule["expr"] for rule in alerts())])
    unseen = {name for name in telemetry_names.METRICS if name.replace(".", "_") not in text}
    assert unseen == set()


def test_the_run_book_says_of_each_alert_what_to_do() -> None:
    headings = re.findall(r"^### (Turnwright\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_pipelines_of_the_collector_consist_of_what_it_configures() -> None:
    config = yaml.safe_load((FOLDER / "collector.yaml").read_text())
    pipelines = config["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert {name for pipeline in pipelines for name in pipeline[kind]} == set(config[kind])
    assert set(config["service"]["extensions"]) == set(config["extensions"])
    assert all(pipeline["processors"][0] == "memory_limiter" for pipeline in pipelines)


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool: Debian has it in prometheus")
def test_alerts_are_raised_by_faults_and_by_nothing_else() -> None:
    cases = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
    named = {rule["alert"] for rule in alerts()}
    assert {case["alertname"] for case in cases[0]["alert_rule_test"]} == named
    raised = cases[1]["promql_expr_test"][0]["exp_samples"]
    assert {re.findall(r'"(\w+)"', sample["labels"])[0] for sample in raised} == named
    for command in (("check", "config", "prometheus.yaml"), ("test", "rules", "alerts_test.yaml")):
        done = subprocess.run(
            ["promtool", *command], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
