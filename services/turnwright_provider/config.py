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
        "openai", "Base URL of an OpenAI-compatible server, with /v1. Empty with a key: https://api.openai.com/v1."
    )
    openai_api_key: str = _api_key("openai", "Its key; may be empty for a server that asks for none.")
    openrouter_base_url: str = _base_url(
        "openrouter", "Base URL of OpenRouter. Empty with a key: https://openrouter.ai/api/v1."
    )
    openrouter_api_key: str = _api_key("openrouter", "Key of OpenRouter.")
    openrouter_referer: str = setting(
        default="", check=_header, description="URL of the application that OpenRouter is told; empty: none."
    )
    openrouter_title: str = setting(
        default="", check=_header, description="Name of the application that OpenRouter is told; empty: none."
    )
    ollama_base_url: str = _base_url(
        "ollama", "Base URL of Ollama, such as http://127.0.0.1:11434; /v1 is added where it has no path."
    )
    ollama_api_key: str = _api_key("ollama", "Its key; empty for a server that asks for none.")
    xai_base_url: str = _base_url("xai", "Base URL of xAI. Empty with a key: https://api.x.ai/v1.")
    xai_api_key: str = _api_key("xai", "Key of xAI.")
    think: bool = setting(
        default=False,
        description="Whether models are asked to reason before they answer; false leaves it to the vendor.",
    )
    scripted_dir: Path = setting(
        default=PACKAGED_SCRIPTS, description="Folder of the scripts that `scripted/{name}` replays."
    )
    think_tags: Literal["leading", "anywhere", "content"] = setting(
        default="leading",
        description="Which `<think>...</think>` in a model's content is reasoning: what leads a reply, any, or none.",
    )
    llm_deadline_s: float = setting(
        default=600.0, ge=0, le=86400, description="Seconds of retries after a rate limit or while a model is loading."
    )
    gateway_deadline_s: float = setting(
        default=30.0, ge=0, le=86400, description="Seconds of retries after errors of a gateway."
    )
    server_deadline_s: float = setting(
        default=60.0, ge=0, le=86400, description="Seconds of retries after errors of a server."
    )
    backoff_s_min: float = setting(default=1.0, ge=0.001, le=3600, description="Seconds before the first retry.")
    backoff_s_max: float = setting(
        default=30.0,
        ge=0.001,
        le=3600,
        description="Longest pause in seconds between tries when the vendor names none.",
    )
    connect_timeout_s: float = setting(default=10.0, gt=0, le=600, description="Seconds to connect to a vendor.")
    silence_timeout_s: float = setting(
        default=300.0,
        gt=0,
        le=86400,
        description="Seconds without a byte, or without more of a reply, after which a call is given up. A vendor that "
        "sends comments or empty events has twice as long for the first token.",
    )
    check_timeout_s: float = setting(
        default=5.0, gt=0, le=600, description="Seconds that a vendor has to list its models, when they are checked."
    )
    flush_ms: int = setting(default=40, ge=0, le=10_000, description="Milliseconds for which deltas are joined.")
    flush_bytes: int = setting(default=1024, ge=1, le=1024 * 1024, description="Bytes at which joined deltas are sent.")
    outbox_bytes_max: int = setting(
        default=256 * 1024, ge=1024, le=64 * 1024 * 1024, description="Bytes that a slow caller may be behind a vendor."
    )
    event_bytes_max: int = setting(
        default=8 * 1024 * 1024,
        ge=1024,
        le=1024**3,
        description="Longest event of a stream, and longest reply that is none, in bytes.",
    )
    reply_bytes_max: int = setting(
        default=256 * 1024 * 1024, ge=1024, le=1024**4, description="Longest answer of a vendor, unpacked, in bytes."
    )
    connections_max: int = setting(default=512, ge=1, le=65_536, description="Most calls to vendors at a time.")
    client_generate: bool = setting(
        default=False,
        description="Whether derived tokens may call models here directly, outside of runs and their budgets.",
    )
    proxy_from_env: bool = setting(
        default=False, description="Use HTTPS_PROXY and its kin for vendors that are not on loopback."
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
