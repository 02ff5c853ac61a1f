"""A server's list of models, and additional questions about one. Source: RU307; architecture 15; research/wire 2.2."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, TypeGuard

from msgspec import Struct
from turnwright_values.types import Capabilities

from turnwright_core.json_text import parse_json
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT
from turnwright_core.suggestions import did_you_mean
from turnwright_provider.domain.model_info import UNKNOWN, ModelInfo, parse_model_info, with_capabilities

MODELS_MAX: Final = 10_000
"""Maximum number of models of a list that are considered."""

NAME_CHARS_MAX: Final = 256
"""Longest name of a listed model, in code points; longer ones are ignored."""

COMPARED_MAX: Final = 1000
"""Maximum number of names that a mistyped one is compared with: of 10,000 similar ones it takes seconds."""

SHOWN_MAX: Final = 10
"""Maximum number of names in an error about another one."""

_ANY_NAME: Final = frozenset({"llamacpp", "me"})
"""`owned_by` of servers with a single model that accept any name."""

_DATE: Final = re.compile(r"-20\d{6}")
_NUM_CTX: Final = re.compile(r"^[ \t]*num_ctx[ \t]+(\d{1,9})[ \t\r]*$", re.MULTILINE)
"""Within a line: `\\s` at its beginning would search the rest of a text of blank lines from each of them."""


class ModelList(Struct, frozen=True):
    """The models that a server lists, by name. `owner` is the `owned_by` of the first one."""

    models: Mapping[str, ModelInfo]
    owner: str = ""

    @property
    def is_exhaustive(self) -> bool:
        """Whether a name that is not listed is invalid."""
        return bool(self.models) and self.owner not in _ANY_NAME

    def info(self, model: str) -> ModelInfo:
        """What it says about a model; UNKNOWN if it does not list it."""
        if not self.is_exhaustive:
            return next(iter(self.models.values()), UNKNOWN) if len(self.models) == 1 else UNKNOWN
        name = self.listed_name(model)
        return UNKNOWN if name is None else self.models[name]

    def listed_name(self, model: str) -> str | None:
        """A model's name there, be it with Ollama's `:latest`, without OpenRouter's `:variant`, or with a date.

        Anthropic lists `claude-sonnet-4-20250514` alone, and answers to `claude-sonnet-4-0` as well.
        """
        bare = model.rpartition(":")[0] or model
        for name in (model, f"{model}:latest", bare, f"models/{model}"):
            if name in self.models:
                return name
        undated = model.removesuffix("-latest").removesuffix("-0")
        dated = (name for name in self.models if name.startswith(f"{undated}-"))
        return max((name for name in dated if _DATE.fullmatch(name[len(undated) :])), default=None)

    def denial(self, model: str) -> str:
        """The error for an unlisted model, with suggestions; empty if it may exist."""
        if not self.is_exhaustive or self.listed_name(model) is not None:
            return ""
        some = ", ".join(sorted(self.models)[:SHOWN_MAX])
        more = ", ..." if len(self.models) > SHOWN_MAX else ""
        suggestion = did_you_mean(model, islice(self.models, COMPARED_MAX))
        return f"does not list {model}{suggestion}; it lists {some}{more}"


def parse_model_list(body: bytes) -> ModelList:
    """The list of models in an answer, in `data`, or in `models` for Google and Ollama; empty if there is none."""
    parsed = parse_json_body(body)
    items = parsed.get("data", parsed.get("models")) if isinstance(parsed, dict) else parsed
    listed = [item for item in items[:MODELS_MAX] if isinstance(item, dict)] if isinstance(items, list) else []
    models: dict[str, ModelInfo] = {}
    for item in listed:
        info = parse_model_info(item)
        names = (item.get("id"), item.get("name"), item.get("model_name"), item.get("key"))
        models |= {name: info for name in names if _is_name(name)}
    owner = next((item["owned_by"] for item in listed if isinstance(item.get("owned_by"), str)), "")
    return ModelList(models, owner)


def _is_name(name: object) -> TypeGuard[str]:
    """Names appear in errors, which cannot hold everything that JSON can."""
    return isinstance(name, str) and 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()


def parse_json_body(body: bytes) -> object:
    """The JSON of an answer; None for anything else."""
    try:
        return parse_json(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


class ModelQuestion(Struct, frozen=True):
    """A question to a server about a model, beyond its list. `path` is below the root, not the base URL."""

    path: str
    read: Callable[[bytes, str], ModelInfo]
    names_model: bool = False
    """Whether it is a POST that names the model."""


def _read_llamacpp_props(body: bytes, model: str) -> ModelInfo:
    """The properties of the one model of a llama.cpp server; its chat template says whether it takes tools."""
    del model
    parsed = parse_json_body(body)
    if not isinstance(parsed, dict):
        return UNKNOWN
    sources = (parsed.get("chat_template_caps"), parsed.get("modalities"))
    can = {name: value for part in sources if isinstance(part, dict) for name, value in part.items()}
    return parse_model_info({**parsed, "capabilities": can})


def _read_ollama_show(body: bytes, model: str) -> ModelInfo:
    """Ollama's details of a model. The window is that of its Modelfile, else at most the default window.

    Ollama allocates memory for the whole window that a call requests: the window that the model was trained for may
    need more than the machine has.
    """
    del model
    parsed = parse_json_body(body)
    if not isinstance(parsed, dict):
        return UNKNOWN
    parameters, fields = parsed.get("parameters"), parsed.get("model_info")
    chosen = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    lengths = fields.items() if isinstance(fields, dict) else ()
    trained = next(
        (parse_model_info({"n_ctx": size}) for name, size in lengths if str(name).endswith(".context_length")), UNKNOWN
    )
    window = min(trained.context_length, CONTEXT_LENGTH_DEFAULT) if chosen is None else int(chosen[1])
    listed = parsed.get("capabilities")
    can = parse_model_info({"capabilities": listed}).capabilities
    if isinstance(listed, list):
        # The list is complete, and Ollama enforces a schema with any model.
        can = with_capabilities(can, Capabilities(tools=False, images=False, reasoning=False, response_format=True))
    return ModelInfo(window, 0, can)


def _read_listed_info(body: bytes, model: str) -> ModelInfo:
    return parse_model_list(body).info(model)


QUESTIONS: Final[Mapping[str, ModelQuestion]] = {
    "llamacpp": ModelQuestion("/props", _read_llamacpp_props),
    "ollama": ModelQuestion("/api/show", _read_ollama_show, names_model=True),
    "lmstudio": ModelQuestion("/api/v0/models", _read_listed_info),
    "litellm": ModelQuestion("/model/info", _read_listed_info),
}
"""By the preset of a server."""

_BY_OWNER: Final = {"llamacpp": "llamacpp", "library": "ollama", "organization_owner": "lmstudio"}
"""By what its list says, for a server that is called under another name."""


def question_of(preset: str, owner: str) -> ModelQuestion | None:
    return QUESTIONS.get(preset) or QUESTIONS.get(_BY_OWNER.get(owner, ""))
