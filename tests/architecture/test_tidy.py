"""Style that linters do not check, read from the syntax trees of services/ and tests/.

A rule takes one file (its path in the repository and its tree) and yields what is wrong, as
(line, words). The last tests of this file hold every rule to an example of what it must catch.
"""

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from parsed import REPO, trees

FILE_LINES_MAX = 600
"""A story that is told whole in one file needs fewer imports than one in three."""
FUNCTION_LINES_MAX = 60
NAMES_THAT_SAY_NOTHING = {"utils", "helpers", "manager", "common", "misc", "info"}
EMPTY_WORDS = {
    "a",
    "an",
    "the",
    "of",
    "for",
    "to",
    "in",
    "on",
    "by",
    "with",
    "from",
    "and",
    "or",
    "is",
    "are",
    "see",
    "this",
}
CATCHES_ALL = {"Exception", "BaseException"}
MOCK_MODULES = {"mock", "unittest.mock", "pytest_mock"}
CHECKS = ("assert_", "check_", "expect")
CLOCKS = {"monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns", "time_ns", "now"}
GUARD_S_MIN = 30
PYTEST_CHECKS = {"raises", "warns", "fail"}

# Where everything may be caught, and why. A path that no longer needs its place is warned about.
CATCH_ALL_ALLOWED = {
    "services/turnwright_mcp/calls.py": "calls of MCP servers: whatever their answers do to the SDK, the call has come to an end",
    "services/turnwright_mcp/agent_calls.py": "agents of other vendors: whatever one does to the SDK, its task has come to an end",
    "services/turnwright_mcp/connection.py": "MCP servers: whatever one does to the SDK, it has ended, and others go on",
    "services/turnwright_executor/turn/commands.py": "tool dispatch: a crash of a tool is data in its entry",
    "services/turnwright_store/app/maintenance.py": "chores: one row that cannot be processed keeps no other waiting",
    "services/turnwright_core/patterns/compiled.py": "globs of models: whatever the translator raises, one cannot be used",
    "services/turnwright_kit/threads.py": "a thread's exception belongs to the caller, who waits in the event loop",
    "services/turnwright_kit/server.py": "a look that fails in any way must not be the last one",
    "services/turnwright_kit/plugin_calls.py": "calls of plugins: a fault of one comes back as one error",
    "services/turnwright_executor/runs/scheduler.py": "the search for work: one run that cannot be read keeps no other waiting",
    "services/turnwright_cli/__main__.py": "the end of a command: an exit code and a sentence, and no traceback",
    "services/turnwright_executor/turn/driver.py": "the loop: whatever happens, the run ends with a reason",
    "services/turnwright_acp/jsonrpc.py": "requests of an editor: whatever fails, each is answered, and the process lives",
    "services/turnwright_acp/session.py": "the watch of a session: whatever ends it, its prompt is answered",
    "services/turnwright_executor/peers/deliveries.py": "the outbox: a webhook that cannot be sent to keeps no other waiting",
    "services/turnwright_client/tool_server.py": "a tool that somebody wrote: whatever it raises fails its call, not the server",
    "services/turnwright_executor/watching/hub.py": "the change feed: a worker publishes to the hub, too, and goes on",
}

LOG_METHODS = {"debug", "info", "warning", "error"}
EVENT = re.compile(r"[a-z]+(_[a-z]+)*_([a-z]+ed|lost|swept)")

POSSESSIVE_GROUP = re.compile(r"(?<![\\(])\)(?:[*+?]|\{[\d,]+\})\+")

Finding = tuple[int, str]
Rule = Callable[[str, ast.Module], Iterator[Finding]]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class UnneededExceptionWarning(UserWarning):
    """An entry of CATCH_ALL_ALLOWED that nothing uses."""


# ---- Rules for services/


def long_functions(path: str, tree: ast.Module) -> Iterator[Finding]:
    """A function does one thing."""
    if "/migrations/" in path:  # a migration is a list
        return
    for node in walk(tree):
        if isinstance(node, FUNCTIONS) and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX:
            yield node.lineno, f"{node.name} has {lines} lines; the limit is {FUNCTION_LINES_MAX}"


def empty_names(path: str, _tree: ast.Module) -> Iterator[Finding]:
    """A module is named by what it is about."""
    for part in Path(path).with_suffix("").parts:
        if part.strip("_") in NAMES_THAT_SAY_NOTHING:
            yield 1, f"{part!r} says nothing; name it by the specification's word"


def possessive_groups(path: str, tree: ast.Module) -> Iterator[Finding]:
    """After such a group, Python before 3.11.5 goes on at a wrong place; an atomic group, `(?>(...)*)`, says the same."""
    if path.endswith("/patterns/compiled.py"):  # its patterns are those of the library `regex`
        return
    for node in walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and (found := POSSESSIVE_GROUP.search(node.value)):
            yield node.lineno, f"{found[0]} after a group; write an atomic group"


def prints(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Only the command line writes to stdout; everything else logs."""
    if path.startswith("services/turnwright_cli/") or path.endswith("/__main__.py"):
        return
    for node in calls(tree):
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            yield node.lineno, "print(); use the log"


def catch_alls(_path: str, tree: ast.Module) -> Iterator[Finding]:
    """Everything is caught at three places only."""
    for node in walk(tree):
        if isinstance(node, ast.ExceptHandler) and passes_on(node):
            continue
        if isinstance(node, ast.ExceptHandler) and (node.type is None or CATCHES_ALL & names_in(node.type)):
            yield node.lineno, "catches everything; name the errors, or give the file a reason in CATCH_ALL_ALLOWED"
        if isinstance(node, ast.Call) and called(node) == "suppress" and CATCHES_ALL & set(map(last_name, node.args)):
            yield node.lineno, "suppresses everything; name the errors"


def catch_alls_outside_the_list(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Everything is caught at the places of CATCH_ALL_ALLOWED only."""
    if path not in CATCH_ALL_ALLOWED:
        yield from catch_alls(path, tree)


def odd_events(_path: str, tree: ast.Module) -> Iterator[Finding]:
    """An event of a log is some words in snake_case, of which the last says what happened."""
    for node in calls(tree):
        is_log = isinstance(node.func, ast.Attribute) and node.func.attr in LOG_METHODS
        if is_log and last_name(node.func.value) in ("_log", "get_logger") and node.args:
            event = node.args[0]
            if isinstance(event, ast.Constant) and not EVENT.fullmatch(str(event.value)):
                yield node.lineno, f"{event.value!r}"


def missing_docstrings(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Modules and public classes say what they are about; a function's name may be enough."""
    parts = Path(path).with_suffix("").parts
    if any(is_private(part) for part in parts):
        return
    if not ast.get_docstring(tree):
        yield 1, "the module has no docstring"
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node):
            yield node.lineno, f"{node.name} has no docstring"


def echoing_docstrings(_path: str, tree: ast.Module) -> Iterator[Finding]:
    """A docstring says what its function's name, class and parameters do not: no words of theirs alone."""
    for owner in walk(tree):
        if not isinstance(owner, (ast.Module, ast.ClassDef)):
            continue
        for node in owner.body:
            said = words_of(ast.get_docstring(node) or "") if isinstance(node, FUNCTIONS) and len(node.body) > 1 else ()
            names = [getattr(owner, "name", ""), node.name, *(arg.arg for arg in node.args.args)] if said else []
            known = {word[:4] for name in names for word in words_of(name)}
            if said and all(word[:4] in known for word in said):
                yield node.lineno, f"the docstring of {node.name} repeats its name"


# ---- Rules for tests/


def checkless_tests(path: str, tree: ast.Module) -> Iterator[Finding]:
    """A test asserts, or calls something whose name says that it does."""
    if not Path(path).name.startswith("test_"):
        return
    checking = checking_functions(tree)
    for node in collected_functions(tree.body):
        if not any(is_check(inner, checking) for inner in ast.walk(node)):
            yield node.lineno, f"{node.name} checks nothing: assert, pytest.raises, or call {'*, '.join(CHECKS)}*"


def mocks(_path: str, tree: ast.Module) -> Iterator[Finding]:
    """No mocks: real SQLite, real gRPC, a local server, the scripted vendor."""
    for node in walk(tree):
        for name in imported_modules(node):
            if name in MOCK_MODULES:
                yield node.lineno, f"imports {name}; use the real thing or a local server"
        if isinstance(node, ast.arg) and node.arg == "mocker":
            yield node.lineno, "takes mocker; use the real thing or a local server"


def patches_of_our_own(_path: str, tree: ast.Module) -> Iterator[Finding]:
    """Our own modules are not patched: clocks, ids and edges come in as arguments."""
    ours = names_of_ours(tree)
    for node in calls(tree):
        if called(node) != "setattr" or not node.args:
            continue
        target = node.args[0]
        text = target.value if isinstance(target, ast.Constant) else ""
        if str(text).startswith("turnwright") or root_name(target) in ours:
            yield node.lineno, f"patches {ast.unparse(target)}; pass the double as an argument"


def short_guards(_path: str, tree: ast.Module) -> Iterator[Finding]:
    """What only ends a test that hangs leaves a busy machine its time."""
    for node in calls(tree):
        if root_name(node.func) == "asyncio" and called(node) in {"timeout", "wait_for"} and node.args:
            limit = node.args[-1]
            if isinstance(limit, ast.Constant) and isinstance(limit.value, (int, float)) and limit.value < GUARD_S_MIN:
                yield node.lineno, f"{ast.unparse(node)}: {GUARD_S_MIN} s are the least"


def short_polls(_path: str, tree: ast.Module) -> Iterator[Finding]:
    """What looks again and again before a test fails leaves a busy machine its time."""
    for node in walk(tree):
        for loop, after in pairwise(node.body) if isinstance(node, FUNCTIONS) else ():
            if not (isinstance(loop, ast.For) and isinstance(after, (ast.Raise, ast.Assert))):
                continue
            looks = numbers_in(loop.iter, "range")
            naps = [nap for each in loop.body for nap in numbers_in(each, "sleep")]
            if looks and naps and looks[-1] * sum(naps) < GUARD_S_MIN:
                yield loop.lineno, f"{looks[-1]} looks of {sum(naps)} s: {GUARD_S_MIN} s are the least"


def numbers_in(tree: ast.AST, function: str) -> list[float]:
    """The numbers that calls of a function are given."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) == function]
    arguments = [argument.value for call in found for argument in call.args if isinstance(argument, ast.Constant)]
    return [value for value in arguments if isinstance(value, (int, float))]


def asserted_durations(_path: str, tree: ast.Module) -> Iterator[Finding]:
    """No verdict says how fast the machine is: count what is done, or wait for what must come."""
    for node in walk(tree):
        if isinstance(node, ast.Assert):
            for inner in ast.walk(node.test):
                if isinstance(inner, ast.Compare) and any(is_upper_bound(*bound) for bound in bounds_of(inner)):
                    yield node.lineno, f"{ast.unparse(inner)} asserts a duration"


# ---- Reading trees


@cache
def walk(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Every node of a tree, walked once for all rules."""
    return tuple(ast.walk(tree))


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Every call of a tree."""
    return (node for node in walk(tree) if isinstance(node, ast.Call))


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`, `c` and `c(...)`; empty for anything else."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def words_of(text: str) -> list[str]:
    """The words of a sentence or of a name that mean something, in lower case."""
    spread = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text.replace("_", " ")).lower()
    return [word for word in re.findall("[a-z0-9]+", spread) if word not in EMPTY_WORDS]


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return last_name(node.func)


def root_name(node: ast.expr) -> str:
    """`a` of `a.b.c`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return getattr(node, "id", "")


def names_in(node: ast.expr) -> set[str]:
    """The last names of an expression or of a tuple of them."""
    return {last_name(e) for e in (node.elts if isinstance(node, ast.Tuple) else [node])}


def is_private(part: str) -> bool:
    """`_x`, but not `__init__` or `__main__`."""
    return part.startswith("_") and not part.startswith("__")


def imported_modules(node: ast.AST) -> list[str]:
    """The dotted names that an import statement may load; empty for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def names_of_ours(tree: ast.Module) -> set[str]:
    """The local names that stand for our modules or for what was imported from them."""
    found = set()
    for node in walk(tree):
        if isinstance(node, ast.Import):
            ours = (alias for alias in node.names if alias.name.startswith("turnwright"))
            found |= {alias.asname or alias.name.partition(".")[0] for alias in ours}
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turnwright"):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def collected_functions(body: list[ast.stmt]) -> Iterator[Function]:
    """The functions that pytest collects from a module or a Test class."""
    for node in body:
        if isinstance(node, FUNCTIONS) and node.name.startswith("test"):
            yield node
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from collected_functions(node.body)


def passes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler ends by raising what it caught."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def checking_functions(tree: ast.Module) -> frozenset[str]:
    """The functions of a file that check something themselves, or by one that does."""
    checking: frozenset[str] = frozenset()
    functions = [node for node in walk(tree) if isinstance(node, FUNCTIONS)]
    while True:
        found = frozenset(f.name for f in functions if any(is_check(inner, checking) for inner in ast.walk(f)))
        if found == checking:
            return checking
        checking = found


def is_check(node: ast.AST, checking: frozenset[str] = frozenset()) -> bool:
    """An assert, `pytest.raises` and its kin, or a call of something that checks."""
    if isinstance(node, ast.Call):
        name = called(node)
        return (
            name in checking
            or name.startswith(CHECKS)
            or (root_name(node.func) in {"pytest", name} and name in PYTEST_CHECKS)
        )
    return isinstance(node, ast.Assert)


def bounds_of(node: ast.Compare) -> Iterator[tuple[ast.expr, ast.cmpop, ast.expr]]:
    """`a < b < c` as (a, <, b) and (b, <, c)."""
    return zip([node.left, *node.comparators[:-1]], node.ops, node.comparators, strict=True)


def is_upper_bound(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> bool:
    """Whether a comparison holds only if the time between two looks at a clock was short."""
    if isinstance(operator, (ast.Gt, ast.GtE)):
        left, right = right, left
    is_less = isinstance(operator, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
    is_span = isinstance(left, ast.BinOp) and isinstance(left.op, ast.Sub)
    return is_less and is_span and any(isinstance(n, ast.Call) and called(n) in CLOCKS for n in ast.walk(left))


# ---- The tests


SERVICE_RULES: list[Rule] = [
    long_functions,
    empty_names,
    possessive_groups,
    prints,
    catch_alls_outside_the_list,
    missing_docstrings,
    odd_events,
    echoing_docstrings,
]
TEST_RULES: list[Rule] = [checkless_tests, mocks, patches_of_our_own, short_guards, short_polls, asserted_durations]


@pytest.mark.parametrize(
    ("folder", "rule"),
    [*(("services", rule) for rule in SERVICE_RULES), *(("tests", rule) for rule in TEST_RULES)],
)
def test_every_file_keeps_the_rule(folder: str, rule: Rule) -> None:
    found = [f"{path}:{line} {words}" for path, tree in trees(folder).items() for line, words in rule(path, tree)]
    assert not found, "\n  ".join([f"{rule.__doc__} ({len(found)} to mend)", *found])


def test_no_file_of_services_is_too_long() -> None:
    others = {"__pycache__", "node_modules", "dist"}
    files = (f for f in (REPO / "services").rglob("*") if f.is_file() and not others.intersection(f.parts))
    lengths = {f.relative_to(REPO).as_posix(): f.read_bytes().count(b"\n") for f in files}
    long = {path: lines for path, lines in lengths.items() if lines > FILE_LINES_MAX}
    assert not long, f"a file tells one story in at most {FILE_LINES_MAX} lines; split {long}"


@pytest.mark.filterwarnings("default::UserWarning")
def test_every_place_that_may_catch_everything_has_a_reason() -> None:
    present = trees("services")
    for path in CATCH_ALL_ALLOWED:
        if path not in present or not list(catch_alls(path, present[path])):
            message = f"{path} catches nothing wholesale: take it off CATCH_ALL_ALLOWED"
            warnings.warn(message, UnneededExceptionWarning, stacklevel=1)
    assert all(CATCH_ALL_ALLOWED.values())


# ---- The rules are held to examples

BAD = [
    (long_functions, "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    (long_functions, "class A:\n  async def f(self):\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    (prints, "print(1)"),
    (possessive_groups, r"P = r'(?:a|b)*+'"),
    (possessive_groups, r"P = r'(?P<a>b){0,3}+'"),
    (possessive_groups, r"P = rf'(?:{a}|b)?+'"),
    (catch_alls, "try:\n    f()\nexcept Exception:\n    pass"),
    (catch_alls, "try:\n    f()\nexcept (OSError, builtins.BaseException) as e:\n    g()"),
    (catch_alls, "try:\n    f()\nexcept:\n    g()"),
    (catch_alls, "with contextlib.suppress(Exception):\n    f()"),
    (missing_docstrings, "x = 1"),
    (odd_events, "_log.info('chore failed')"),
    (odd_events, "get_logger('x').warning('not_ready', a=1)"),
    (missing_docstrings, '"""M."""\nclass A: pass'),
    (echoing_docstrings, 'def usage_to_pb(usage):\n    """The usage to pb."""\n    return 1'),
    (
        echoing_docstrings,
        'class Store:\n    def read(self, request):\n        """Read the requests."""\n        return 1',
    ),
    (checkless_tests, "def test_a(): f()"),
    (checkless_tests, "class TestA:\n    async def test_a(self): self.fail_over()"),
    (mocks, "import unittest.mock as m"),
    (mocks, "from unittest import mock"),
    (mocks, "def test_a(mocker): assert mocker"),
    (patches_of_our_own, "monkeypatch.setattr('turnwright_store.writer.now', f)"),
    (patches_of_our_own, "import turnwright_store.writer\nmp.setattr(turnwright_store.writer, 'now', f)"),
    (patches_of_our_own, "from turnwright_store.writer import Writer as W\nsetattr(W, 'now', f)"),
    (short_guards, "async def test_a():\n    async with asyncio.timeout(5):\n        assert await f()"),
    (short_guards, "asyncio.wait_for(f(), 2.5)"),
    (short_polls, "def test_a():\n    for _ in range(80):\n        sleep(0.02)\n    raise AssertionError"),
    (asserted_durations, "assert time.monotonic() - begin_s < 10"),
    (asserted_durations, "assert 10 >= perf_counter() - begin_s"),
]

GOOD = [
    (long_functions, "def f():\n" + "    x = 1\n" * (FUNCTION_LINES_MAX - 1)),
    (prints, "console.print(1)\nlog.info('print(')"),
    (possessive_groups, r"P = r'(?>(?:a|b)*)[^c]*+\)++ ()*+,;'"),
    (catch_alls, "try:\n    f()\nexcept (OSError, KeyError):\n    pass\nwith suppress(OSError):\n    f()"),
    (catch_alls, "try:\n    f()\nexcept BaseException:\n    close()\n    raise"),
    (echoing_docstrings, 'def read(path):\n    """Read a path. Raises OSError."""\n    return 1'),
    (echoing_docstrings, 'class Store(Protocol):\n    def read(self, path):\n        """Read a path."""'),
    (checkless_tests, "def test_a(): agree()\ndef agree():\n    assert x"),
    (missing_docstrings, '"""M."""\ndef _f(): pass\nclass _A:\n    def f(self): pass'),
    (missing_docstrings, '"""M."""\nclass A:\n    """A."""\n    def __init__(self): pass'),
    (missing_docstrings, '"""M."""\ndef f(): pass\nclass A:\n    """A."""\n    async def f(self): pass'),
    (checkless_tests, "def test_a():\n    with pytest.raises(OSError):\n        f()"),
    (checkless_tests, "def test_a(): expect_row(f())\ndef test_b(): x.check_all()\ndef f(): pass"),
    (checkless_tests, "def test_a():\n    for x in y:\n        assert x"),
    (mocks, "import unittest\nfrom turnwright_provider import scripted"),
    (patches_of_our_own, "import os\nmonkeypatch.setattr(os, 'name', 'x')\nmonkeypatch.setenv('TURNWRIGHT_X', '1')"),
    (odd_events, "_log.info('chore_failed')\n_log.error('lease_lost')\nprint.info('x y')"),
    (short_polls, "def test_a():\n    for _ in range(1500):\n        sleep(0.02)\n    raise AssertionError"),
    (short_guards, "asyncio.timeout(60)\nawait asyncio.wait_for(f(), LONG_S)\nshell.run(timeout=1)"),
    (asserted_durations, "assert time.monotonic() - begin_s > 1\nassert time.monotonic() < deadline_s"),
]


@pytest.mark.parametrize(("rule", "source"), BAD)
def test_a_rule_catches_its_fault(rule: Rule, source: str) -> None:
    assert len({line for line, _ in rule("services/turnwright_x/test_x.py", ast.parse(source))}) == 1


@pytest.mark.parametrize(("rule", "source"), GOOD)
def test_a_rule_lets_good_code_pass(rule: Rule, source: str) -> None:
    assert list(rule("services/turnwright_x/test_x.py", ast.parse(source))) == []


def test_some_rules_depend_on_the_path() -> None:
    tree = ast.parse("print(1)\ntry: f()\nexcept Exception: g()")
    assert list(prints("services/turnwright_cli/x.py", tree)) == []
    assert list(prints("services/turnwright_x/__main__.py", tree)) == []
    assert list(catch_alls_outside_the_list(next(iter(CATCH_ALL_ALLOWED)), tree)) == []
    assert len(list(catch_alls_outside_the_list("services/turnwright_x/y.py", tree))) == 1
    assert len(list(empty_names("services/turnwright_x/_utils.py", tree))) == 1
    assert len(list(empty_names("services/turnwright_x/common/x.py", tree))) == 1
    assert list(empty_names("services/turnwright_x/error_info.py", tree)) == []
    assert list(missing_docstrings("services/turnwright_x/_inner/x.py", tree)) == []
    assert list(checkless_tests("tests/conftest.py", ast.parse("def test_a(): f()"))) == []
