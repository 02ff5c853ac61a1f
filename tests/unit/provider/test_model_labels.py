"""Which models metrics name."""

from turnwright_kit.telemetry_names import OTHER
from turnwright_provider.app.generate import ModelLabels
from turnwright_provider.domain.model_call import ModelCall


def call(model: str, alias: str) -> ModelCall:
    return ModelCall(model=model, messages=(), alias=alias)


def test_only_configured_models_are_named():
    labels = ModelLabels()
    assert [labels.of(call("big", alias)) for alias in ("fast", "", "vendor/big")] == ["big", OTHER, OTHER]


def test_who_may_add_models_adds_a_bounded_number_of_labels():
    labels = ModelLabels(names_max=3)
    named = [labels.of(call(f"m{number}", f"a{number}")) for number in range(10)]
    assert named == ["m0", "m1", "m2", *[OTHER] * 7]
    assert labels.of(call("m1", "again")) == "m1"
