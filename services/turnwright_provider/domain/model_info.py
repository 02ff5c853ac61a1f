"""Metadata of a model: context window, output limit, capabilities. Each vendor uses its own field names.

All known names are looked up in every vendor's answer; unknown ones are ignored.
Source: research/wire 2.2; the vendors' references.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple
from turnwright_values.types import Capabilities

from turnwright_core.json_text import JsonMapping

TOKENS_MAX: Final = 2**31
"""No window is as long, in tokens; a figure beyond it is a mistake."""

_WINDOWS: Final = (
    # llama.cpp and LM Studio: the loaded window before the model's maximum.
    *("n_ctx", "loaded_context_length", "max_model_len", "context_window", "max_context_length", "context_length"),
    *("inputTokenLimit", "max_input_tokens"),
)
_OUTPUTS: Final = ("max_completion_tokens", "max_output_tokens", "outputTokenLimit", "max_tokens")

_WITHIN: Final = ("top_provider", "model_info", "meta", "default_generation_settings")
"""Objects whose fields count as those of the model itself, and before these."""

_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "tools": ("supports_tools", "supports_function_calling", "function_calling", "trained_for_tool_use"),
    "images": ("vision", "supports_vision", "supports_image_input", "supports_image_in", "image_input"),
    "reasoning": ("thinking", "reasoning", "supports_reasoning"),
    "response_format": ("structured_outputs", "supports_structured_output", "supports_response_schema"),
    "prefill": ("supports_assistant_prefill",),
}
"""Fields that say yes or no."""

_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "tools": frozenset({"tools", "tool_use", "tool-use", "function_calling"}),
    "images": frozenset({"vision", "image", "images", "multimodal"}),
    "reasoning": frozenset({"reasoning", "thinking"}),
    "response_format": frozenset({"structured_outputs", "json_schema"}),
}
"""Words in a list of what a model can do."""


class ModelInfo(Struct, frozen=True):
    """Window and output limit in tokens, 0 where unknown."""

    context_length: int = 0
    output_tokens_max: int = 0
    capabilities: Capabilities = Capabilities()

    def or_else(self, other: ModelInfo) -> ModelInfo:
        """This information, completed by another one's where it is unknown."""
        return ModelInfo(
            self.context_length or other.context_length,
            self.output_tokens_max or other.output_tokens_max,
            with_capabilities(self.capabilities, other.capabilities),
        )


UNKNOWN: Final = ModelInfo()


def with_capabilities(can: Capabilities, other: Capabilities) -> Capabilities:
    """What one says, and where it says nothing what another one says."""
    pairs = zip(astuple(can), astuple(other), strict=True)
    return Capabilities(*(theirs if ours is None else ours for ours, theirs in pairs))


def parse_model_info(item: JsonMapping) -> ModelInfo:
    """What an entry of a model list says."""
    return _info_in(item).or_else(_of_servers(item.get("providers")))


def _info_in(item: JsonMapping) -> ModelInfo:
    """The same, without its list of servers."""
    parts = [inner for name in _WITHIN if isinstance(inner := item.get(name), Mapping)]
    parts.append(item)
    window = first_count(part.get(name) for part in parts for name in _WINDOWS)
    # OpenRouter: the model's own window may be longer than that of the server behind it.
    stated = _tokens(item.get("context_length"))
    return ModelInfo(
        min(window, stated or window),
        first_count(part.get(name) for part in parts for name in _OUTPUTS),
        _capabilities(parts),
    )


def _of_servers(servers: object) -> ModelInfo:
    """Hugging Face's router: a model has several servers, and any of them may answer."""
    infos = [_info_in(one) for one in servers if isinstance(one, Mapping)] if isinstance(servers, list) else []
    windows = [info.context_length for info in infos if info.context_length]
    can = Capabilities()
    for info in infos:
        can = with_capabilities(can, info.capabilities)
    return ModelInfo(min(windows, default=0), 0, can)


def first_count(values: Iterable[object]) -> int:
    """The first value that is a number of tokens; 0 if none is."""
    return next((tokens for value in values if (tokens := _tokens(value))), 0)


def _tokens(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < TOKENS_MAX else 0


def _capabilities(parts: Iterable[JsonMapping]) -> Capabilities:
    listed = list(parts)
    objects = [*listed, *(inner for part in listed if isinstance(inner := part.get("capabilities"), Mapping))]
    flags = {name: _flag(objects, fields) for name, fields in _FLAGS.items()}
    words = {name: True for part in listed for name in _named(part)}
    known = with_capabilities(Capabilities(**flags), Capabilities(**words))
    return with_capabilities(known, _capabilities_in(listed))


def _flag(objects: Iterable[JsonMapping], fields: Iterable[str]) -> bool | None:
    for one in objects:
        for name in fields:
            value = one.get(name)
            # Anthropic: an object with the answer in it.
            value = value.get("supported") if isinstance(value, Mapping) else value
            if isinstance(value, bool):
                return value
    return None


def _named(part: JsonMapping) -> Iterator[str]:
    """Names in lists that may be incomplete."""
    words_in = {word for field in ("capabilities", "tags") for word in _texts(part.get(field))}
    yield from (name for name, words in _WORDS.items() if words_in & words)


def _capabilities_in(parts: Iterable[JsonMapping]) -> Capabilities:
    """Capabilities from complete lists: OpenRouter's parameters, and the input types of several services."""
    flags: dict[str, bool] = {}
    for part in parts:
        if parameters := _texts(part.get("supported_parameters")):
            flags |= {name: bool(parameters & words) for name, words in _WORDS.items() if name != "images"}
        architecture = part.get("architecture")
        for place in (architecture if isinstance(architecture, Mapping) else {}, part):
            if kinds := _texts(place.get("input_modalities")):
                flags["images"] = "image" in kinds
    return Capabilities(**flags)


def _texts(value: object) -> frozenset[str]:
    return frozenset(one for one in value if isinstance(one, str)) if isinstance(value, list) else frozenset()
