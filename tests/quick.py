"""The tests that a person runs (`make test`), and what the end of every run says about those that were left out.

`--quick` selects the tests of the architecture, the unit tests, and those by which rows.toml proves a row; except what is
marked `slow`, and the kills. So a test is quick by where it stands, or by what it proves. Of a long table it runs cases spread
over the whole table, and properties try fewer examples.

Of a long table whose tests have services to talk to, every run tries some cases on each database; the others are marked `soak`.
A run leaves out what an earlier one has passed that was told the same file by TURNWRIGHT_TEST_ONCE.
"""

import os
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

from needs import need_of

TESTS = Path(__file__).parent
QUICK = {"architecture", "unit"}
KILLS = "crash"
SLOW = pytest.StashKey[int]()
EXAMPLES = 10
CASES = 5
SERVED_CASES = 2
"""Cases of one table whose tests have services to talk to."""
TABLE_CASES = 4
"""The same without `--quick`, on each database."""


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="only the tests of `make test`")


def pytest_configure(config):
    config.stash[SLOW] = 0
    if config.getoption("quick"):
        settings.register_profile("quick", settings.default, max_examples=EXAMPLES)
        settings.load_profile("quick")
    if file := os.environ.get("TURNWRIGHT_TEST_ONCE"):
        config.pluginmanager.register(Once(config, Path(file)))


class Once:
    """Leaves out the tests that passed before, and remembers those that pass."""

    def __init__(self, config, file):
        self.file = file
        self.earlier = set(self.file.read_text(encoding="utf-8").splitlines()) if self.file.exists() else set()
        self.is_worker = hasattr(config, "workerinput")
        self.is_quick = config.getoption("quick")
        self.passed = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.nodeid not in self.earlier]

    def pytest_runtest_logreport(self, report):
        # A property has tried fewer examples in a quick run.
        if report.when == "call" and report.passed and not (self.is_quick and "hypothesis" in report.keywords):
            self.passed.append(report.nodeid)

    def pytest_sessionfinish(self):
        if not self.is_worker:
            with self.file.open("a", encoding="utf-8") as file:
                file.writelines(f"{name}\n" for name in self.passed)


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")
def pytest_thin_tables(items):
    """Before what is marked is left out."""
    tables = defaultdict(list)
    for item in items:
        if "postgresql" in params_of(item) or folder_of(item) not in QUICK:
            tables[item.nodeid.partition("[")[0], "postgresql" in params_of(item)].append(item)
    named = named_by_rows()
    for cases in tables.values():
        for item in set(cases) - set(some_of(cases, named, TABLE_CASES)):
            item.add_marker(pytest.mark.soak)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if not config.getoption("quick"):
        return
    named = named_by_rows()
    proofs = {test.partition("[")[0] for test in named}
    tables = defaultdict(list)
    for item in items:
        if is_quick(item, proofs):
            tables[item.nodeid.partition("[")[0]].append(item)
    chosen = set()
    for cases in tables.values():
        chosen.update(some_of(cases, named, CASES if folder_of(cases[0]) in QUICK else SERVED_CASES))
    quick = [item for item in items if item in chosen]
    config.stash[SLOW] = len(items) - len(quick)
    items[:] = quick


def is_quick(item, proofs):
    folder = folder_of(item)
    if folder == KILLS or item.get_closest_marker("slow"):
        return False
    return folder in QUICK or item.nodeid.partition("[")[0] in proofs


def named_by_rows():
    """The tests, or cases of them, that rows.toml names."""
    documents = tomllib.loads((TESTS / "rows.toml").read_text(encoding="utf-8")).values()
    return {test for rows in documents for row in rows.values() for test in row.get("tests", ())}


def some_of(cases, named, most):
    """So many cases from the first to the last of a table, and those that a row names."""
    if len(cases) <= most:
        return cases
    spread = {number * (len(cases) - 1) // (most - 1) for number in range(most)}
    return [case for place, case in enumerate(cases) if place in spread or case.nodeid in named]


def params_of(item):
    return item.callspec.params.values() if hasattr(item, "callspec") else ()


def folder_of(item):
    return item.path.relative_to(TESTS).parts[0]


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
