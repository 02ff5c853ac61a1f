"""Replies of the cases and of every dialect, damaged: parts deleted, doubled, repeated, put elsewhere, cut off."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from cases import load_cases
from unit.grammar.hostile import PIECES, Hostile
from unit.grammar.mixtures import FRAGMENTS, WHOLE

CORPORA = (
    "grammar/aider_real_outputs.jsonl",
    "grammar/native_formats_renamed.jsonl",
    "grammar/roo_marker_sequence.jsonl",
    "grammar/roo_xml.jsonl",
    "grammar/sglang_detectors.jsonl",
    "grammar/vllm_tool_parsers.jsonl",
    "rummy/xml_parser.jsonl",
    "rummy/xml_parser_spec.jsonl",
)
# A whole file of the cases would leave little room for the damage.
SEED_CHARS_MAX = 2_000
MUTATIONS_MAX = 8
REPEATS_MAX = 60


@cache
def seeds() -> tuple[str, ...]:
    """The texts that are damaged."""
    inputs = (case.get("model_output", case.get("input")) for name in CORPORA for case in load_cases(name))
    texts = (one["content"] if isinstance(one, dict) else one for one in inputs)
    return (*WHOLE, *(text[:SEED_CHARS_MAX] for text in texts if text))


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Return a seed after a few mutations."""
    text = draw(st.sampled_from(seeds()))
    for _ in range(draw(st.integers(0, MUTATIONS_MAX))):
        text = _mutation(draw, text)
    return text


def _mutation(draw: st.DrawFn, text: str) -> str:
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 60)))
    before, part, after = text[:start], text[start:end], text[end:]
    match draw(st.sampled_from(("delete", "double", "repeat", "put", "splice", "truncate", "behead"))):
        case "delete":
            return before + after
        case "double":
            return before + part + part + after
        case "repeat":
            return before + part * draw(st.integers(2, REPEATS_MAX)) + after
        case "put":
            return before + draw(st.sampled_from((*PIECES, *FRAGMENTS, *WHOLE))) + part + after
        case "splice":
            other = draw(st.sampled_from(seeds()))
            middle = draw(st.integers(0, len(other)))
            return before + other[middle:]
        case "truncate":
            return before
        case _:
            return part + after


PARTS = st.lists(st.sampled_from((*PIECES, *FRAGMENTS, *WHOLE)), min_size=1, max_size=4).map("".join)
AMPLIFIED = st.builds(Hostile, piece=PARTS, prefix=st.just("") | PARTS, tail=st.just("") | PARTS)
