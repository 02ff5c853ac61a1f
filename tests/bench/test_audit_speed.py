"""The price of the audit: tasks of one turn with their rows beside the same without, in pairs, and what both send the database."""

from __future__ import annotations

import gc
import statistics
import time
from collections import Counter

import pytest

from services import running
from sql_counter import counted_statements, seen_transactions
from turnwright_store.rpc import calls

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(1200)]

PAIRS = 150
BUDGET = 1.1


def no_row(*_) -> None:
    """In the place of what writes a row."""


async def test_a_task_with_its_row_of_the_audit_beside_one_without(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    recorded, pairs = calls.record, []
    sent: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    with counted_statements() as statements:
        async with running(tmp_path) as services:
            services.script('<update status="200">Done</update>')
            await services.until(await services.act(run="first"))
            gc.freeze()
            for number in range(PAIRS):
                taken = {}
                # Each comes first in half of the pairs.
                for is_on in (True, False) if number % 2 else (False, True):
                    calls.record = recorded if is_on else no_row
                    statements.clear()
                    begin_s = time.process_time()
                    await services.until(await services.act(run=f"r{number}_{is_on}"))
                    taken[is_on] = time.process_time() - begin_s
                    sent[is_on].update(statements)
                pairs.append(taken)
            gc.unfreeze()
            calls.record = recorded
            rows = await services.client.list_audit(services.project, most=0)
    assert sum(row.method == "Act" for row in rows) == PAIRS + 1
    low, ratio, high = statistics.quantiles([taken[True] / taken[False] for taken in pairs], n=4)
    turn_ms = statistics.median(taken[False] for taken in pairs) * 1000
    print(
        f"\na task of one turn {turn_ms:.2f} ms of CPU; with its row {ratio:.3f} of that, at most {BUDGET} (quartiles {low:.3f} to {high:.3f})"
    )
    print("statements of a task, without and with:", {
        word: [round(sent[is_on][word] / PAIRS, 2) for is_on in (False, True)] for word in sorted(sent[True])
    })  # fmt: skip
    assert ratio > 0


async def test_a_row_of_the_audit_has_no_transaction_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services:
        services.script('<update status="200">Done</update>')
        with seen_transactions() as committed:
            await services.until(await services.act())
    with_rows = [statements for statements in committed if any("INTO audit" in one for one in statements)]
    assert len(with_rows) == 1
    assert any("INTO loops" in one for one in with_rows[0])
