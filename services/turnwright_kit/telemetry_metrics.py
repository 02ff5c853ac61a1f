"""Counters and histograms at a tenth of the library's price: sums in dictionaries, which are read when metrics leave.

The library has counters that are read then, but no such histograms: a gauge of the same name and attributes stands in
for each, and its data are exchanged on their way to a reader. Histograms are cumulative.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any, Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    PeriodicExportingMetricReader,
)

from turnwright_kit.telemetry import SpanAttributes
from turnwright_kit.telemetry_names import BOUNDARIES, METRICS

SERIES_MAX: Final = 2000
"""Series of one metric, as in the library; what is beyond them is counted in one more."""

_OVERFLOW: Final = (("otel.metric.overflow", True),)

_Key = tuple[tuple[str, str | int | float | bool], ...]


class Buckets:
    """One series of a histogram."""

    __slots__ = ("bounds", "counts", "greatest", "least", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts = bounds, [0] * (len(bounds) + 1)
        self.total, self.least, self.greatest = 0.0, inf, -inf

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        self.least = min(self.least, value)
        self.greatest = max(self.greatest, value)


class Sums:
    """The counters and histograms of METRICS."""

    def __init__(self, meter: Any) -> None:
        """Have the library's meter read them."""
        self._begin_ns = time.time_ns()
        self._counters: dict[str, dict[_Key, float]] = {}
        self._histograms: dict[str, dict[_Key, Buckets]] = {}
        for name, (kind, unit, meaning) in METRICS.items():
            if kind == "counter":
                self._counters[name] = {}
                meter.create_observable_counter(name, [self._reader(self._counters[name])], unit, meaning)
            elif kind == "histogram":
                self._histograms[name] = {}
                meter.create_observable_gauge(name, [self._reader(self._histograms[name])], unit, meaning)

    def add(self, name: str, amount: float, attributes: SpanAttributes) -> None:
        series = self._counters[name]
        key = self._key(series, attributes)
        series[key] = series.get(key, 0) + amount

    def record(self, name: str, value: float, attributes: SpanAttributes) -> None:
        key = tuple(attributes.items())
        (self._histograms[name].get(key) or self.histogram(name, attributes)).add(value)

    def histogram(self, name: str, attributes: SpanAttributes) -> Buckets:
        """The series with these attributes, for one who adds to it often."""
        series = self._histograms[name]
        return series.setdefault(self._key(series, attributes), Buckets(BOUNDARIES[METRICS[name][1]]))

    def _key(self, series: dict[_Key, Any], attributes: SpanAttributes) -> _Key:
        key = tuple(attributes.items())
        return key if key in series or len(series) < SERIES_MAX else _OVERFLOW

    def _reader(self, series: dict[_Key, Any]) -> Any:
        def read(_options: CallbackOptions) -> Iterator[Observation]:
            # Copied at once: other threads go on.
            for key, value in list(series.items()):
                yield Observation(0 if isinstance(value, Buckets) else value, dict(key))

        return read

    def exchanged(self, data: MetricsData) -> MetricsData:
        """With the histograms in place of the gauges that stand in for them."""
        return replace(
            data,
            resource_metrics=[
                replace(
                    of_resource,
                    scope_metrics=[
                        replace(of_scope, metrics=[self._exchanged(metric) for metric in of_scope.metrics])
                        for of_scope in of_resource.scope_metrics
                    ],
                )
                for of_resource in data.resource_metrics
            ],
        )

    def _exchanged(self, metric: Metric) -> Metric:
        series = self._histograms.get(metric.name)
        if series is None:
            return metric
        now_ns = time.time_ns()
        points = [
            HistogramDataPoint(
                dict(key), self._begin_ns, now_ns, sum(counts := list(one.counts)), one.total, counts, one.bounds,
                one.least, one.greatest,
            )
            for key, one in list(series.items())
        ]  # fmt: skip
        return replace(metric, data=Histogram(points, AggregationTemporality.CUMULATIVE))


class _Exchanging:
    sums: Sums
    """Set before the first collection."""

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **more: Any) -> None:
        reader: Any = super()
        reader._receive_metrics(self.sums.exchanged(metrics_data), timeout_millis, **more)  # noqa: SLF001 - its own


class PrometheusReader(_Exchanging, PrometheusMetricReader):
    """The library's reader for Prometheus."""


class ExportingReader(_Exchanging, PeriodicExportingMetricReader):
    """The library's reader for collectors."""
