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
    vendor_busy_deadline_s: float = setting(
        default=600.0,
        ge=0,
        le=86400,
        description="How long to retry after a rate limit or while a model loads, in seconds.",
    )
    vendor_gateway_deadline_s: float = setting(
        default=30.0, ge=0, le=86400, description="How long to retry after gateway errors, in seconds."
    )
    vendor_server_deadline_s: float = setting(
        default=60.0, ge=0, le=86400, description="How long to retry after server errors, in seconds."
    )
    vendor_backoff_s_max: float = setting(
        default=30.0,
        ge=0.001,
        le=3600,
        description="Longest pause between retries if the vendor does not name one, in seconds.",
    )
    vendor_silence_s: float = setting(
        default=300.0,
        gt=0,
        le=86400,
        description="Give up a model call after this many seconds without progress. A vendor that sends comments or "
        "empty events gets twice as long for the first token.",
    )
    client_generate: bool = setting(
        default=False,
        description="Allow derived tokens to call models directly, outside runs and their budgets.",
    )
    proxy_from_env: bool = setting(
        default=False, description="Use HTTPS_PROXY and related variables for vendors that are not on loopback."
    )

    vendor_backoff_s_min: float = 1.0
    """Seconds before the first retry."""
    check_timeout_s: float = 5.0
    """Seconds that a vendor may take to list its models during a check."""
    flush_ms: int = 40
    """Milliseconds that deltas are collected before they are sent: nobody sees the pause."""
    flush_bytes: int = 1024
    """Collected deltas are sent at once when they reach this size."""
    event_bytes_max: int = 8 * 1024 * 1024
    """Longest event of a streamed reply, and longest reply that is not streamed, in bytes."""
    response_bytes_max: int = 256 * 1024 * 1024
    """Longest response of a vendor, unpacked, in bytes."""

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
