"""Names of models: `vendor/model`. Source: RU307; architecture 15."""

from __future__ import annotations

from turnwright_core.errors import Reason, fault


def split_vendor_model(vendor_model: str) -> tuple[str, str]:
    """Vendor and the vendor's own name of the model. Raises InvalidError for a text that is not `vendor/model`."""
    vendor, slash, model = vendor_model.partition("/")
    if not (vendor and slash and model):
        raise fault(
            Reason.INVALID_FIELD,
            f"{vendor_model!r} is not of the form `vendor/model`; write, for example, `openai/gpt-5-mini`.",
            field="model.vendor_model",
        )
    return vendor, model
