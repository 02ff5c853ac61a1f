"""What reading costs, against a plain scan of the same bytes in the same run.

The floor is the cheapest thing that still looks at every byte here: a compiled regex that finds tags, and
`str.find` of something absent. Times are printed and never asserted: watch the ratios, and the growth from
one size to its double, which says whether a text is read in linear time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from functools import partial

import pytest

from turnwright_core.patterns.matching import match
from turnwright_grammar.edits.apply import EditResult, apply_edit
from turnwright_grammar.native import commands_from_call
from turnwright_grammar.reader.parser import read_reply
from turnwright_grammar.reader.streaming import ReplyReader
from unit.grammar.hostile import HOSTILE
from unit.grammar.streams import in_pieces

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

DELTA_CHARS = 16
PATHS = 10_000
MEASURED_S = 0.3
TAG = re.compile(r"</?[a-z]")

CODE = '''
def tokens_of(line: str, *, limit: int = 80) -> list[str]:
    """Return the words of a line, `limit` of them at the most."""
    found = []
    for word in line.split():
        if len(found) >= limit or word.startswith("#"):
            break
        found.append(word.strip(",.;") if len(word) < 40 else word[:40])
    return found


class Table:
    """Rows of cells, printed as <td> elements."""

    def __init__(self, rows: dict[str, list[int]]) -> None:
        self.rows = {key: [cell for cell in cells if 0 < cell <= 1_000] for key, cells in rows.items()}

    def html(self) -> str:
        cells = "".join(f"<td class='cell'>{cell}</td>" for row in self.rows.values() for cell in row)
        return f"<table>{cells}</table>"
'''
PROSE = """The test fails because the limit is compared with the wrong list: `found` grows while words are
skipped, so the fifth word of a long line is lost. I would rather count what was looked at, as the reader in
`src/lines.py` does it, than carry a second counter through the loop. It's a small change; 2 of the 14 tests
need a new expectation.

"""
SMALL = """I look at the next one.

<get path="src/part_{number}.py" line="{number}"/>
<sh>python -m pytest -q tests/test_part_{number}.py</sh>
"""
SET = '<set path="{path}">{body}</set>\n\n'


def code(chars: int) -> str:
    """So much code."""
    return (CODE * (chars // len(CODE) + 1))[:chars] + "\n"


def reply_of_3_kb() -> str:
    """Five commands as one turn makes them, about 3 KB with the prose."""
    edit = "<<SEARCH\n    found = []\nSEARCH\n<<REPLACE\n    found: list[str] = []\nREPLACE"
    return (
        f'{PROSE}<get path="src/lines.py" line="1" limit="80"/>\n\n{PROSE}{SET.format(path="src/words.py", body=CODE)}'
        f"Then the tests.\n\n<sh>python -m pytest -q tests/unit && git diff --stat</sh>\n\n{PROSE}"
        f"{SET.format(path='src/lines.py', body=edit)}{PROSE}{PROSE}"
        '<update status="102">Counted the words that were looked at; the tests run.</update>\n'
    )


def reply_of_small_commands(chars: int) -> str:
    return "".join(SMALL.format(number=number) for number in range(chars // 4))[:chars]


def reply_of_large_bodies(chars: int, count: int) -> str:
    return "".join(PROSE + SET.format(path=f"src/large_{n}.py", body=code(chars // count)) for n in range(count))


def tool_call(chars: int) -> str:
    return f"{PROSE}<tool_call>\n{json.dumps({'name': 'set', 'arguments': arguments(chars)})}\n</tool_call>\n"


def arguments(chars: int) -> dict[str, str]:
    return {"path": "src/large.py", "content": code(chars)}


REPLIES = {
    "3 KB, five commands": reply_of_3_kb(),
    "200 KB, small commands": reply_of_small_commands(200_000),
    "400 KB, small commands": reply_of_small_commands(400_000),
    "200 KB, two large bodies": reply_of_large_bodies(200_000, 2),
    "400 KB, two large bodies": reply_of_large_bodies(400_000, 2),
    "200 KB, one body": reply_of_large_bodies(200_000, 1),
    "200 KB, prose only": PROSE * (200_000 // len(PROSE)),
    "50 KB argument in a tool_call": tool_call(50_000),
}


def seconds(act: Callable[[], object], measured_s: float = MEASURED_S) -> float:
    """The least time that `act` takes, tried again for so long and at least once more."""
    best, spent, tries = float("inf"), 0.0, 0
    while spent < measured_s or tries < 2:
        begin = time.perf_counter()
        act()
        taken = time.perf_counter() - begin
        best, spent, tries = min(best, taken), spent + taken, tries + 1
    return best


def scan(text: str) -> float:
    """Seconds to find every tag in a text."""
    return seconds(lambda: sum(1 for _ in TAG.finditer(text)), MEASURED_S / 4)


def find(text: str) -> float:
    """Seconds to find nothing in a text."""
    return seconds(lambda: text.find("\x01\x02"), MEASURED_S / 10)


def row(name: str, text: str, taken_s: float) -> str:
    size, floor = len(text.encode("utf-8", "surrogatepass")), scan(text)
    return (
        f"{name:<44} {size:>8} B {taken_s * 1e3:>9.3f} ms {size / taken_s / 1e6:>8.1f} MB/s"
        f"   scan {floor * 1e3:>7.3f} ms, x{taken_s / floor:<6.1f} find {find(text) * 1e3:.3f} ms"
    )


def streamed(text: str) -> list[float]:
    """Seconds of each delta."""
    reader, taken = ReplyReader(), []
    for delta in in_pieces(text, DELTA_CHARS):
        begin = time.perf_counter()
        reader.feed(delta)
        taken.append(time.perf_counter() - begin)
    reader.finish()
    return taken


def stream_s(text: str, measured_s: float = MEASURED_S) -> float:
    """Seconds of a whole stream, without a clock between the deltas."""
    deltas = list(in_pieces(text, DELTA_CHARS))

    def act() -> None:
        reader = ReplyReader()
        for delta in deltas:
            reader.feed(delta)
        reader.finish()

    return seconds(act, measured_s)


def test_replies_are_read_at_the_pace_of_a_scan():
    print("\nwhole replies (goals: 3 KB in 0.15 ms, 200 KB in 12 ms, 400 KB in 2.5 times that of 200 KB)")
    for name, text in REPLIES.items():
        print(row(name, text, seconds(lambda text=text: read_reply(text))))
    assert len(read_reply(REPLIES["3 KB, five commands"]).commands) == 5


def test_streams_cost_little_for_each_delta():
    print(f"\nstreams in deltas of {DELTA_CHARS} characters (goal: 3 us a delta)")
    for name, text in REPLIES.items():
        taken = streamed(text)
        whole = stream_s(text)
        taken.sort()
        print(
            f"{name:<44} {len(taken):>6} deltas {whole / len(taken) * 1e6:>7.2f} us each, median {taken[len(taken) // 2] * 1e6:.2f}"
            f" p99 {taken[len(taken) * 99 // 100] * 1e6:.1f} worst {taken[-1] * 1e6:.0f} us"
        )
    assert len(REPLIES) == 8


def test_hostile_replies_cost_twice_as_much_at_twice_the_size():
    print(
        "\nhostile replies; growth is 400 KB over 200 KB (goal: 2.5 at most), the 40 slowest and the 10 that grow most"
    )
    rows = []
    for hostile in HOSTILE:
        small, large = hostile.text(200_000), hostile.text(400_000)
        one, two = (seconds(lambda text=text: read_reply(text), MEASURED_S / 6) for text in (small, large))
        rows.append((hostile.name, small, one, two / one))
    report(rows)
    assert len(rows) == len(HOSTILE)


def test_hostile_streams_cost_twice_as_much_at_twice_the_size():
    print(f"\nhostile streams in deltas of {DELTA_CHARS} characters, 100 KB and 200 KB; as above")
    rows = []
    for hostile in HOSTILE:
        small, large = hostile.text(100_000), hostile.text(200_000)
        one, two = (stream_s(text, MEASURED_S / 6) for text in (small, large))
        rows.append((hostile.name, small, one, two / one))
    report(rows, each=DELTA_CHARS)
    assert len(rows) == len(HOSTILE)


def report(rows: Iterable[tuple[str, str, float, float]], each: int = 0) -> None:
    """Print the slowest of (name, text, seconds, growth), and what grows fastest."""
    by_time = sorted(rows, key=lambda one: one[2], reverse=True)
    by_growth = sorted(by_time, key=lambda one: one[3], reverse=True)
    for title, chosen in (("slowest", by_time[:40]), ("fastest growing", by_growth[:10])):
        print(f"-- {title} of {len(by_time)}")
        for name, text, taken_s, growth in chosen:
            delta = f" {taken_s / (len(text) / each) * 1e6:.2f} us a delta" if each else ""
            print(f"{row(name, text, taken_s)}   growth {growth:.2f}{delta}")
    times = sorted(one[2] for one in by_time)
    print(f"-- median {times[len(times) // 2] * 1e3:.2f} ms, all {sum(times) * 1e3:.0f} ms")


def test_native_calls_cost_a_small_multiple_of_json():
    print("\nnative calls, beside json.loads")
    for chars in (1_000, 100_000):
        text = json.dumps(arguments(chars))
        for name, one in (("whole", text), ("cut off", text[: -len(text) // 10])):
            taken = seconds(lambda one=one: commands_from_call("set", one))
            floor = seconds(partial(json.loads, text))
            print(
                f"{chars // 1000:>4} KB {name:<8} {taken * 1e3:>8.3f} ms   json {floor * 1e3:.3f} ms, x{taken / floor:.1f}"
            )
        assert commands_from_call("set", text)[0][0].body == code(chars)


def test_edits_of_a_large_file_cost_a_small_multiple_of_a_search():
    text = "".join(f"value_{number} = compute({number}, scale={number % 7})\n" for number in range(5_000))
    line = "value_3900 = compute(3900, scale=1)"
    searches = {
        "one line": line,
        "twenty lines": "\n".join(text.split("\n")[3900:3920]),
        "other indentation": f"    {line}\n    value_3901 = compute(3901, scale=2)",
        "other spaces": line.replace(" ", "  "),
        "absent": line.replace("compute", "absent"),
        "absent, twenty lines": "\n".join(text.split("\n")[3900:3920]).replace("compute(3910", "absent(3910"),
    }
    print(f"\none SEARCH and REPLACE on {len(text)} B, beside str.find and str.splitlines of it")
    floor = seconds(lambda: text.find(line)) + seconds(text.splitlines)
    for name, search in searches.items():
        body = f"<<SEARCH\n{search}\nSEARCH\n<<REPLACE\nchanged = 1\nREPLACE"
        taken = seconds(lambda body=body: apply_edit(text, body))
        applied = isinstance(apply_edit(text, body), EditResult)
        print(
            f"{name:<24} {taken * 1e3:>8.3f} ms   floor {floor * 1e3:.3f} ms, x{taken / floor:<6.1f} applied: {applied}"
        )
    assert isinstance(apply_edit(text, f"<<SEARCH\n{line}\nSEARCH\n<<REPLACE\nx\nREPLACE"), EditResult)


def test_a_pattern_over_many_paths_costs_a_small_multiple_of_a_regex():
    paths = [f"src/package_{number % 40}/module_{number}.{'py' if number % 3 else 'md'}" for number in range(PATHS)]
    floor_of = re.compile(r"src/.*\.py").fullmatch
    floor = seconds(lambda: [floor_of(path) for path in paths])
    print(f"\npatterns over {PATHS} paths, beside re.fullmatch")
    for pattern in (
        "src/**/*.py",
        "src/package_{1,2,3}/*.md",
        "**/module_7*",
        "!(docs)/**",
        "/module_\\d+5\\.py$/",
        paths[-1],
    ):
        taken = seconds(lambda pattern=pattern: [match(pattern, path) for path in paths])
        print(
            f"{pattern:<44} {taken / PATHS * 1e6:>8.3f} us a path   regex {floor / PATHS * 1e6:.3f} us, x{taken / floor:.1f}"
        )
    assert sum(match("src/**/*.py", path) for path in paths) == sum(bool(floor_of(path)) for path in paths)
