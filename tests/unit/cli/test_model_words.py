"""The context window of a model, as `turnwright models` shows it."""

import pytest
from turnwright.types.v1.model_pb2 import Model, ReportedWindow

from turnwright_cli.models import context_words

WINDOW = ReportedWindow(context_length=9000, known_length=65536)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Model(context_length=65536), "65,536"),
        (Model(context_length=65536, reported_window=WINDOW), "9,000 (named in a refusal; else 65,536)"),
        (Model(reported_window=ReportedWindow(context_length=9000)), "9,000 (named in a refusal; else 32,768 (assumed))"),
        (Model(context_length=8192, reported_window=WINDOW), "8,192"),
    ],
    ids=["known", "refused", "refused and not known", "configured since"],
)  # fmt: skip
def test_a_window_that_a_refusal_named_replaces_the_known_one_until_that_changes(model: Model, words: str) -> None:
    assert context_words(model) == words
