"""Where copied and moved things go."""

import pytest

from turnwright_executor.tools.copying import destination

CASES = [
    ("known://plan_*", "known://plan_a", "known://old/", "known://old/plan_a"),
    ("known://plan_*", "known://plan_a", "known://old", "known://old/plan_a"),
    ("src/**/*.py", "src/a/b.py", "lib/", "lib/a/b.py"),
    ("./src/*.py", "src/b.py", "lib", "lib/b.py"),
    ("src/{a,b}.py", "src/a.py", "lib/", "lib/a.py"),
    ("/.*[.]py/", "src/a/b.py", "lib/", "lib/b.py"),
    ("known://a", "known://a", "known://b", "known://b"),
    ("src/a.py", "src/a.py", "lib/", "lib/a.py"),
    ("\u00fc/*", "u\u0308/b.py", "lib/", "lib/b.py"),
    ("u\u0308/**", "\u00fc/a/b.py", "lib/", "lib/a/b.py"),
    ("\u00fc[1].txt", "u\u0308[1].txt", "b.txt", "b.txt"),
    ("a[1].txt", "a[1].txt", "b.txt", "b.txt"),
]


@pytest.mark.parametrize(("pattern", "source", "to", "result"), CASES)
def test_each_source_keeps_its_path_below_the_fixed_part(pattern, source, to, result):
    """RU026, RU027."""
    assert destination(pattern, source, to) == result
