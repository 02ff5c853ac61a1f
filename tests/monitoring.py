"""The metrics of the code as Prometheus sees them, and what deploy/telemetry asks of them."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from turnwright_kit import telemetry_names

FOLDER = Path(__file__).parents[1] / "deploy" / "telemetry"
UNITS = {"s": "_seconds"}
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
LABELS_OF_OUR_OWN = {"backend", "service"}


def metrics() -> set[str]:
    """The names under which Prometheus sees the metrics of the code; the stack of test_telemetry.py proves the rule."""
    return {
        name.replace(".", "_") + UNITS.get(unit, "") + suffix
        for name, (kind, unit, _) in telemetry_names.METRICS.items()
        for suffix in SUFFIXES[kind]
    }


def labels() -> set[str]:
    attributes = {value for value in vars(telemetry_names).values() if isinstance(value, str)}
    return {value.replace(".", "_") for value in attributes} | LABELS_OF_OUR_OWN


def alerts() -> list[dict]:
    return [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]


def dashboard_queries() -> list[str]:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]
