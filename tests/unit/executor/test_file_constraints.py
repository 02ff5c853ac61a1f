"""What the project says of its files holds for tools. Rows RU113, RU114."""

import pytest
import pytest_asyncio
from turnwright_values.types import FileConstraint, FileConstraintKind, Mode

from turnwright_core.constraints import Constraints
from turnwright_executor.tools.contract import Proposed

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def fixed(bench):
    """A project in which one folder is read-only and another one ignored."""
    bench.constraints = Constraints(
        [
            FileConstraint("fixed/**", FileConstraintKind.READONLY),
            FileConstraint("hidden/**", FileConstraintKind.IGNORE),
        ]
    )
    await bench.file("fixed/a.py", "one\n")
    await bench.file("free.py", "two\n")
    await bench.file("hidden/h.py", "three\n", known=False)
    return bench


@pytest.mark.parametrize(
    "command",
    [
        '<set path="fixed/a.py">new</set>',
        '<set path="fixed/new.py">new</set>',
        '<set path="free/../fixed/a.py">new</set>',
        '<rm path="fixed/a.py"/>',
        '<rm path="fixed/**"/>',
        '<mv path="fixed/a.py" to="b.py"/>',
        '<mv path="free.py" to="fixed/a.py"/>',
        '<cp path="free.py" to="fixed/b.py"/>',
    ],
)
async def test_a_readonly_file_is_not_changed(fixed, command):
    """RU113: refused at the gate, before anything is proposed."""
    done = await fixed.prepare(command)
    assert (done.outcome, "read-only" in done.body) == ("permission:403", True)
    assert (fixed.text("fixed/a.py"), fixed.text("free.py")) == ("one\n", "two\n")


async def test_a_readonly_file_is_read_and_copied(fixed):
    """RU113: it is taken in."""
    done = await fixed.run('<get path="fixed/a.py"/>')
    assert done.outcome == ""
    done = await fixed.run('<cp path="fixed/a.py" to="copy.py"/>')
    assert (done.outcome, fixed.text("copy.py")) == ("", "one\n")


async def test_what_was_accepted_before_a_file_became_readonly_is_not_done(fixed):
    """RU113: the constraint that holds when the change is made counts."""
    fixed.constraints = Constraints()
    proposal = await fixed.prepare('<set path="fixed/a.py">new</set>')
    assert isinstance(proposal, Proposed)
    fixed.constraints = Constraints([FileConstraint("fixed/a.py", FileConstraintKind.READONLY)])
    done = await fixed.perform('<set path="fixed/a.py">new</set>', proposal)
    assert (done.outcome, fixed.text("fixed/a.py")) == ("permission:403", "one\n")


@pytest.mark.parametrize("command", ['<get path="hidden/h.py"/>', '<set path="hidden/h.py">new</set>'])
async def test_an_ignored_file_gets_no_entry(fixed, command):
    """RU114."""
    done = await fixed.prepare(command)
    assert (done.outcome, "ignored by the project" in done.body) == ("permission:403", True)
    assert await fixed.entries.get(["hidden/h.py"]) == []


async def test_a_shell_uses_an_ignored_file(fixed):
    """RU114."""
    fixed.mode = Mode.ACT
    await fixed.run('<sh command="cat hidden/h.py > seen.txt"/>')
    assert fixed.text("seen.txt") == "three\n"
