"""The tests that a person runs (`make test`), and what the end of every run says about those that were left out.

`--quick` selects the tests of the architecture, the unit tests, and those by which rows.toml proves a row; except what is
marked `slow`, and the kills. So a test is quick by where it stands, or by what it proves.
"""

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from needs import need_of

TESTS = Path(__file__).parent
QUICK = {"architecture", "unit"}
KILLS = "crash"
SLOW = pytest.StashKey[int]()


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="only the tests of `make test`")


def pytest_configure(config):
    config.stash[SLOW] = 0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if not config.getoption("quick"):
        return
    documents = tomllib.loads((TESTS / "rows.toml").read_text(encoding="utf-8")).values()
    proofs = {test.partition("[")[0] for rows in documents for row in rows.values() for test in row.get("tests", ())}
    quick = [item for item in items if is_quick(item, proofs)]
    config.stash[SLOW] = len(items) - len(quick)
    items[:] = quick


def is_quick(item, proofs):
    folder = item.path.relative_to(TESTS).parts[0]
    if folder == KILLS or item.get_closest_marker("slow"):
        return False
    return folder in QUICK or item.nodeid.partition("[")[0] in proofs


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["slow"] = session.config.stash[SLOW]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Each worker of pytest-xdist selects the same."""
    node.config.stash[SLOW] = getattr(node, "workeroutput", {}).get("slow", 0)


def pytest_terminal_summary(terminalreporter, config):
    skipped = {report.nodeid: report for report in terminalreporter.stats.get("skipped", ())}.values()
    needs = Counter(
        (need, "files" if isinstance(report, pytest.CollectReport) else "tests")
        for report in skipped
        if isinstance(report.longrepr, tuple) and (need := need_of(report.longrepr[2]))
    )
    parts = [f"{config.stash[SLOW]:,} tests that take longer"] if config.stash[SLOW] else []
    parts += [f"{number:,} {kind} for want of {need}" for (need, kind), number in sorted(needs.items())]
    if parts:
        *first, last = parts
        rest = " `make test-all` runs all of them, beside what they need (CONTRIBUTING.md)."
        terminalreporter.write_line(f"\nLeft out: {', '.join(first)}{' and ' if first else ''}{last}.{rest}")
