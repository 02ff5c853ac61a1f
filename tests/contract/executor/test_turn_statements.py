"""What a turn whose commands are pure sends to SQLite: two commits, and few statements whatever it reads."""

import pytest

from services import running
from sql_counter import seen_transactions

pytestmark = pytest.mark.asyncio

TURNS = 12
STATEMENTS_OF_A_RUN_MAX = 61
"""Of one turn, those of its four transactions that write."""

STATEMENTS_MAX = 19
"""Of a turn, BEGIN and COMMIT of its transactions counted too."""


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "1000000")


def writes(transactions, *words):
    """The transactions with each of these statements."""
    return [one for one in transactions if all(any(s.startswith(word) for s in one) for word in words)]


@pytest.mark.parametrize("as_neighbours", [True, False])
async def test_a_pure_turn_is_two_commits_and_few_statements(tmp_path, as_neighbours):
    with seen_transactions() as seen:
        async with running(tmp_path, as_neighbours=as_neighbours, record_after_s=1e6) as services:
            for number in range(TURNS):
                for name in "ab":
                    (services.files / f"{name}{number}.txt").write_text(f"{name} {number}\n" * 100)
            replies = (
                f'<get path="a{turn}.txt"/><get path="b{turn}.txt"/><update status="{102 if turn < TURNS - 1 else 200}">'
                f"turn {turn}</update>"
                for turn in range(TURNS)
            )
            services.script(*replies)
            seen.clear()
            assert (await services.until(await services.act())).status == 200
    packets, ends = writes(seen, "INSERT INTO packets"), writes(seen, "UPDATE turns", "INSERT INTO turns")
    assert len(packets) == TURNS
    assert len(ends) == TURNS - 1
    usual = sorted(packets, key=len)[TURNS // 2], sorted(ends, key=len)[TURNS // 2]
    assert sum(map(len, usual)) <= STATEMENTS_MAX, usual
    assert all(sum(statement.startswith("SELECT runs") for statement in one) == 1 for one in usual)


async def test_the_start_and_the_end_of_a_run_are_few_transactions(tmp_path):
    """The files of the project are known from the run before: RU165; ADR 51."""
    with seen_transactions() as seen:
        async with running(tmp_path, record_after_s=1e6) as services:
            (services.files / "a.txt").write_text("a\n")
            services.script(*['<get path="a.txt"/><update status="200">read</update>'] * 3)
            for number in range(3):
                seen.clear()
                assert (await services.until(await services.act(run=f"r{number}"))).status == 200
            # How often the chores of the store look, and who follows the run reads, depends on the machine.
            committed = [one for one in writes(seen, "INSERT") if "search" not in str(one)]
    # Created and claimed, begun, sent and ended; those that come together may be committed together.
    assert len(committed) <= 4, committed
    assert sum(map(len, committed)) <= STATEMENTS_OF_A_RUN_MAX, committed
