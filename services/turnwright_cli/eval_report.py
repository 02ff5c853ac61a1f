"""What `eval` reports: one result for each run, sums for each variant, and each variant beside the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, Final

from msgspec import Struct

from turnwright_cli.output import Column
from turnwright_cli.plain import shown_line


class EvalResult(Struct, frozen=True, kw_only=True):
    """One task, done once by one variant."""

    task: str
    variant: str
    repetition: int
    """1-based."""
    success: bool = False
    """Whether the check exited with 0."""
    check: str = ""
    """What became of the check where that is not success: an outcome such as `exit_1:500`, or why it did not run."""
    status: int = 0
    """Of the loop; 0: there was none."""
    reason: str = ""
    """Why the loop ended."""
    turns: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = None
    """None: no price is known."""
    seconds: float = 0.0
    """From the task's entering the queue to the end of its loop, without the check."""
    run: str = ""
    folder: str = ""
    """The copy that it worked on, if that is kept."""
    error: str = ""
    """Why it could not be carried out."""

    @property
    def pair(self) -> tuple[str, int]:
        """By which runs of two variants are compared."""
        return self.task, self.repetition


class Totals(Struct, frozen=True, kw_only=True):
    """Sums over results."""

    runs: int
    passed: int
    turns: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: float | None
    """None if that of one of them is not known."""
    seconds: float
    cache_share: float | None
    """`cached_tokens` of `prompt_tokens`; None if there are none."""


class VariantReport(Struct, frozen=True, kw_only=True):
    """A variant's sums, and what they are of those of the first variant, over the tasks that both have done."""

    variant: str
    totals: Totals
    ratios: dict[str, float | None]
    """1.0: as much as the first one. None: one of the two is 0, or not known."""


COMPARED: Final = ("passed", "turns", "prompt_tokens", "completion_tokens", "cost_usd", "seconds")


def totals_of(results: Sequence[EvalResult]) -> Totals:
    costs = [one.cost_usd for one in results]
    prompt, cached = sum(one.prompt_tokens for one in results), sum(one.cached_tokens for one in results)
    return Totals(
        runs=len(results),
        passed=sum(one.success for one in results),
        turns=sum(one.turns for one in results),
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=sum(one.completion_tokens for one in results),
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        seconds=sum(one.seconds for one in results),
        cache_share=cached / prompt if prompt else None,
    )


def reports_of(variants: Iterable[str], results: Sequence[EvalResult]) -> list[VariantReport]:
    """In the order of the file; the first variant is what the others are compared with."""
    of = {name: [one for one in results if one.variant == name] for name in variants}
    first = next(iter(of.values()))
    return [VariantReport(variant=name, totals=totals_of(own), ratios=_ratios(first, own)) for name, own in of.items()]


def _ratios(first: Sequence[EvalResult], own: Sequence[EvalResult]) -> dict[str, float | None]:
    both = {one.pair for one in first} & {one.pair for one in own}
    base, these = (totals_of([one for one in some if one.pair in both]) for some in (first, own))

    def ratio(name: str) -> float | None:
        whole, part = getattr(base, name), getattr(these, name)
        return part / whole if whole and part is not None else None

    return {name: ratio(name) for name in COMPARED}


def _money(cost: float | None) -> str:
    return "" if cost is None else f"${cost:.4f}"


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _verdict(one: EvalResult) -> str:
    return "passed" if one.success else "error" if one.error else "failed"


RESULTS: Final[Sequence[Column[EvalResult]]] = (
    Column("task", lambda one: one.task),
    Column("variant", lambda one: one.variant),
    Column("repetition", lambda one: str(one.repetition)),
    Column("check", _verdict),
    Column("status", lambda one: str(one.status or "")),
    Column("turns", lambda one: str(one.turns)),
    Column("prompt", lambda one: str(one.prompt_tokens)),
    Column("completion", lambda one: str(one.completion_tokens)),
    Column("cost", lambda one: _money(one.cost_usd)),
    Column("cached", lambda one: _share(one.cached_tokens / one.prompt_tokens if one.prompt_tokens else None)),
    Column("seconds", lambda one: f"{one.seconds:.1f}"),
    Column("why", lambda one: "" if one.success else one.error or one.check),
)


def _figure(of: Callable[[Totals], str], ratio: str) -> Callable[[VariantReport], str]:
    """A sum with its ratio, which the first variant's own line has not."""

    def shown(one: VariantReport) -> str:
        value = one.ratios[ratio]
        return of(one.totals) if value is None else f"{of(one.totals)} ({value:.2f})"

    return shown


VARIANTS: Final[Sequence[Column[VariantReport]]] = (
    Column("variant", lambda one: one.variant),
    Column("passed", lambda one: f"{one.totals.passed}/{one.totals.runs}"),
    Column("turns", _figure(lambda sums: str(sums.turns), "turns")),
    Column("prompt", _figure(lambda sums: str(sums.prompt_tokens), "prompt_tokens")),
    Column("completion", _figure(lambda sums: str(sums.completion_tokens), "completion_tokens")),
    Column("cost", _figure(lambda sums: _money(sums.cost_usd), "cost_usd")),
    Column("cached", lambda one: _share(one.totals.cache_share)),
    Column("seconds", _figure(lambda sums: f"{sums.seconds:.1f}", "seconds")),
)

_STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0 2rem; }
th, td { border-bottom: 1px solid #8886; padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top; }
td { font-variant-numeric: tabular-nums; }
.failed td, .error td { background: #d0302022; }
"""


def page_of(title: str, results: Sequence[EvalResult], reports: Sequence[VariantReport]) -> str:
    """One static page. It fetches nothing and runs nothing, and its policy says so to the browser."""
    heading = escape(shown_line(title))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return "\n".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{heading}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{heading}</h1>",
            "<p>A figure in brackets is the ratio to the first variant, over the tasks that both have done.</p>",
            _table("Variants", VARIANTS, reports, lambda _: ""),
            _table("Runs", RESULTS, results, _verdict),
            "</body>\n</html>\n",
        )
    )


def _table(caption: str, columns: Sequence[Column[Any]], items: Iterable[Any], kind: Callable[[Any], str]) -> str:
    head = "".join(f'<th scope="col">{escape(column.name)}</th>' for column in columns)
    rows = (
        f'<tr class="{kind(one)}">' + "".join(f"<td>{escape(shown_line(column.value(one)))}</td>" for column in columns)
        for one in items
    )
    return "\n".join((f"<h2>{caption}</h2>\n<table>\n<tr>{head}</tr>", *(f"{row}</tr>" for row in rows), "</table>"))
