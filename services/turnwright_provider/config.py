"""Every knob of the provider. Keys and URLs of vendors live here only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from turnwright_core.kit.settings import PREFIX, Settings, SettingsError, setting
from turnwright_provider.domain.prices import Price, read_prices

DEFAULT_LISTEN = "127.0.0.1:7443"
PACKAGED_SCRIPTS = Path(__file__).parent / "scripts"


def _stripped(url: str) -> str:
    return url.strip().rstrip("/")


def _header(value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise ValueError("must be printable ASCII")
    return value.strip()


def _base_url(vendor: str, description: str) -> Any:
    """A vendor's base URL, with or without our prefix."""
    name = f"{vendor.upper()}_BASE_URL"
    return setting(default="", variables=(f"{PREFIX}{name}", name), check=_stripped, description=description)


def _api_key(vendor: str, description: str) -> Any:
    """A vendor's key, never shown, with or without our prefix."""
    name = f"{vendor.upper()}_API_KEY"
    return setting(default="", variables=(f"{PREFIX}{name}", name), repr=False, description=description)


PRICE_PREFIX: Final = f"{PREFIX}PRICE_"
"""Variables with the price of a model begin so; its alias follows."""


class ProviderSettings(Settings):
    """Settings of the provider. URLs and keys of vendors are read under their usual names too."""

    openai_base_url: str = _base_url(
        "openai", "Base URL of an OpenAI-compatible server, including /v1. Empty with a key: https://api.openai.com/v1."
    )
    openai_api_key: str = _api_key(
        "openai", "API key of the OpenAI-compatible server. Leave it empty if the server needs none."
    )
    openrouter_base_url: str = _base_url(
        "openrouter", "Base URL of OpenRouter. Empty with a key: https://openrouter.ai/api/v1."
    )
    openrouter_api_key: str = _api_key("openrouter", "API key of OpenRouter.")
    openrouter_referer: str = setting(
        default="", check=_header, description="Application URL sent to OpenRouter. Empty: none."
    )
    openrouter_title: str = setting(
        default="", check=_header, description="Application name sent to OpenRouter. Empty: none."
    )
    ollama_base_url: str = _base_url(
        "ollama", "Base URL of Ollama, such as http://127.0.0.1:11434. /v1 is added if the URL has no path."
    )
    ollama_api_key: str = _api_key("ollama", "API key of Ollama. Leave it empty if the server needs none.")
    xai_base_url: str = _base_url("xai", "Base URL of xAI. Empty with a key: https://api.x.ai/v1.")
    xai_api_key: str = _api_key("xai", "API key of xAI.")
    think: bool = setting(
        default=False,
        description="Ask models to reason before they answer. false: the vendor's default.",
    )
    scripted_dir: Path = setting(
        default=PACKAGED_SCRIPTS, description="Directory of the scripts that `scripted/{name}` replays."
    )
    think_tags: Literal["leading", "anywhere", "content"] = setting(
        default="leading",
        description="Which `<think>...</think>` in a model's text counts as reasoning: one at the start of a reply "
        "(`leading`), any (`anywhere`) or none (`content`).",
    )
    llm_deadline_s: float = setting(
        default=600.0,
        ge=0,
        le=86400,
        description="How long to retry after a rate limit or while a model loads, in seconds.",
    )
    gateway_deadline_s: float = setting(
        default=30.0, ge=0, le=86400, description="How long to retry after gateway errors, in seconds."
    )
    server_deadline_s: float = setting(
        default=60.0, ge=0, le=86400, description="How long to retry after server errors, in seconds."
    )
    backoff_s_min: float = setting(
        default=1.0, ge=0.001, le=3600, description="Pause before the first retry, in seconds."
    )
    backoff_s_max: float = setting(
        default=30.0,
        ge=0.001,
        le=3600,
        description="Longest pause between retries if the vendor does not name one, in seconds.",
    )
    connect_timeout_s: float = setting(
        default=10.0, gt=0, le=600, description="Timeout for connecting to a vendor, in seconds."
    )
    silence_timeout_s: float = setting(
        default=300.0,
        gt=0,
        le=86400,
        description="Give up a model call after this many seconds without progress. A vendor that sends comments or "
        "empty events gets twice as long for the first token.",
    )
    check_timeout_s: float = setting(
        default=5.0,
        gt=0,
        le=600,
        description="How long a vendor may take to list its models during a check, in seconds.",
    )
    flush_ms: int = setting(
        default=40, ge=0, le=10_000, description="How long deltas are collected before they are sent, in milliseconds."
    )
    flush_bytes: int = setting(
        default=1024, ge=1, le=1024 * 1024, description="Collected deltas are sent once they reach this size, in bytes."
    )
    outbox_bytes_max: int = setting(
        default=256 * 1024,
        ge=1024,
        le=64 * 1024 * 1024,
        description="How far a slow caller may fall behind a vendor, in bytes.",
    )
    event_bytes_max: int = setting(
        default=8 * 1024 * 1024,
        ge=1024,
        le=1024**3,
        description="Longest single event of a streamed reply, and longest reply that is not streamed, in bytes.",
    )
    reply_bytes_max: int = setting(
        default=256 * 1024 * 1024,
        ge=1024,
        le=1024**4,
        description="Longest vendor response after decompression, in bytes.",
    )
    connections_max: int = setting(
        default=512, ge=1, le=65_536, description="Maximum number of concurrent calls to vendors."
    )
    client_generate: bool = setting(
        default=False,
        description="Allow derived tokens to call models directly, outside runs and their budgets.",
    )
    proxy_from_env: bool = setting(
        default=False, description="Use HTTPS_PROXY and related variables for vendors that are not on loopback."
    )

    def loaded(self) -> None:
        """Check the prices of the environment. Raises SettingsError."""
        said = {name: value for name, value in os.environ.items() if name.startswith(PRICE_PREFIX)}
        try:
            vars(self).update(_prices=read_prices(said, PRICE_PREFIX), _said=said)
        except ValueError as error:
            raise SettingsError(str(error)) from None

    @property
    def more(self) -> Mapping[str, str]:
        """The variables of prices."""
        found: Mapping[str, str] = vars(self)["_said"]
        return found

    @property
    def prices(self) -> Mapping[str, Price]:
        """What calls cost, by the alias of the model, as the environment said when the settings were read."""
        found: Mapping[str, Price] = vars(self)["_prices"]
        return found
