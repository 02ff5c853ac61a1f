"""Reading broken arguments costs time in proportion to their length, counted in characters and calls."""

import pytest

from turnwright_grammar.native import commands_from_call

from .counted import cost_of

pytestmark = pytest.mark.slow

CHARS = 1_500
GROWTH = 4
PIECES = [
    '"a": ', '"a": "a": ', '"a":"b"c', '\n"a": "b" c"\n', "\u201ca\u201d: \u201c", "\u201c", '"a": {"b": ', "'a': 'a': ",
    '"x", {"y": "', '{"a":"x"y","b":"', 'x = "y", ', '"a" "', '" "a": "', '"k": r"', "{a:b ", "{a: b\n", '["a" b", ', '[r"',
    '"//', '"/*', '{"a":"b" ', '",', '"+"', '"}', '"], ', '(")', "# ", "// } ", "[note] x ", "{} x ", '"\\q" ', '"""', "```{",
    '<|"|>', "a, ", "a=b ", '"a"\n',
]  # fmt: skip


@pytest.mark.parametrize("prefix", ["", '{"a":', "["])
@pytest.mark.parametrize("piece", PIECES)
def test_the_repair_of_arguments_is_linear(piece, prefix):
    short, long = (cost_of_repair(prefix + piece * (chars // len(piece))) for chars in (CHARS, GROWTH * CHARS))
    # Where little is read of a text at all, the little may grow by steps.
    assert long < 1.5 * GROWTH * short + 20 * GROWTH * CHARS


def cost_of_repair(text: str) -> int:
    return cost_of("turnwright_grammar", lambda: commands_from_call("set", text))
