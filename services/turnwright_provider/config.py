"""Settings of the provider. Only here are keys and URLs of vendors read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from turnwright_values.types import Price

from turnwright_core.json_text import JsonObject
from turnwright_core.private_files import read_file, read_private
from turnwright_kit.settings import PREFIX, Settings, SettingsError, setting
from turnwright_provider.domain.endpoints import EndpointSpec, EndpointTable, Sourced, endpoint_of, read_tables
from turnwright_provider.domain.presets import BY_NAME, PRESETS, Preset
from turnwright_provider.domain.usage import PRICE_PREFIX, read_prices

DEFAULT_LISTEN = "127.0.0.1:7443"
PACKAGED_SCRIPTS = Path(__file__).parent / "scripts"


def _stripped(url: str) -> str:
    return url.strip().rstrip("/")


def _header(value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise ValueError("must be printable ASCII")
    return value.strip()


def _either(name: str) -> tuple[str, str]:
    """A variable with our prefix, and under its usual name."""
    return f"{PREFIX}{name}", name


def _preset_settings() -> JsonObject:
    """URL, key and key file of each preset."""
    found: JsonObject = {}
    for preset in PRESETS:
        url, key = preset.url_variable, preset.key_variable
        hosted = f" Empty with a key: {preset.hosted_url}." if preset.hosted_url else ""
        says = _OWN if preset.name == "openai" else f"Base URL of {preset.name}."
        found[url.lower()] = setting(says + hosted, "", variables=_either(url), check=_stripped)
        found[key.lower()] = setting(
            _KEY, "", variables=(*_either(key), *preset.more_keys), check=str.strip, repr=False
        )
        found[f"{key.lower()}_file"] = setting(
            "File with that key, if the variable is empty.", "", variables=_either(f"{key}_FILE")
        )
    return found


_OWN: Final = "Base URL of an OpenAI-compatible server, including /v1."
_KEY: Final = "API key. Leave it empty if the server needs none."


def _read_key(path: Path, setting_name: str) -> str:
    """The key in a file. Raises SettingsError."""
    try:
        return read_private(path.expanduser()).decode().strip()
    except (OSError, ValueError) as error:
        raise SettingsError(f"{setting_name}: {path} cannot be read as a key: {error}") from None


ENDPOINTS_FILE: Final = "endpoints.toml"
"""The endpoints file in the home."""

ENDPOINTS_VARIABLE: Final = f"{PREFIX}ENDPOINTS_FILE"


class ProviderSettings(Settings, beside=_preset_settings()):
    """Settings of the provider. URLs and keys of vendors are also read under their usual names."""

    endpoints_file: str = setting(
        "TOML file of endpoints (docs/vendors.md). Empty: `endpoints.toml` in the home, if there is one.", ""
    )
    vendors: str = setting(
        "Plugins that bring vendors: entry points of `turnwright.vendors`, or `module:function`, "
        "separated by commas. Empty: all that are installed. `none`: none.",
        "",
    )
    openrouter_referer: str = setting("Application URL sent to OpenRouter. Empty: none.", "", check=_header)
    openrouter_title: str = setting("Application name sent to OpenRouter. Empty: none.", "", check=_header)
    think: bool = setting("Ask models to reason before they answer. false: the vendor's default.", False)
    scripted_dir: Path = setting("Directory of the scripts that `scripted/{name}` replays.", PACKAGED_SCRIPTS)
    think_tags: Literal["leading", "anywhere", "content"] = setting(
        "Which `<think>...</think>` in a model's text counts as reasoning: one at the start of a reply "
        "(`leading`), any (`anywhere`) or none (`content`).",
        "leading",
    )
    vendor_busy_deadline_s: float = setting(
        "How long to retry after a rate limit or while a model loads, in seconds.", 600.0, ge=0, le=86400
    )
    vendor_gateway_deadline_s: float = setting(
        "How long to retry after gateway errors, in seconds.", 30.0, ge=0, le=86400
    )
    vendor_connect_deadline_s: float = setting(
        "How long to retry if a vendor's server refuses connections, as local ones do that restart, in seconds.",
        10.0,
        ge=0,
        le=86400,
    )
    vendor_server_deadline_s: float = setting(
        "How long to retry after server errors, in seconds.", 60.0, ge=0, le=86400
    )
    vendor_backoff_s_max: float = setting(
        "Longest pause between retries if the vendor does not name one, in seconds.", 30.0, ge=0.001, le=3600
    )
    vendor_silence_s: float = setting(
        "Give up a model call after this many seconds without progress. A vendor that sends comments or "
        "empty events gets twice as long for the first token.",
        300.0,
        gt=0,
        le=86400,
    )
    proxy_from_env: bool = setting("Use HTTPS_PROXY and related variables for vendors that are not on loopback.", False)

    vendor_backoff_s_min: float = 1.0
    """Seconds before the first retry."""
    check_timeout_s: float = 5.0
    """Seconds that a vendor may take to list its models during a check."""
    model_wait_s: float = 3.0
    """Seconds to wait for a vendor's metadata about a model, if it is possible to go on without."""
    model_lifetime_s: float = 600.0
    """Seconds for which a vendor's metadata about a model is cached."""
    flush_ms: int = 40
    """Milliseconds for which deltas are collected before they are sent; too short to notice."""
    flush_bytes: int = 1024
    """Collected deltas are sent at once when they reach this size."""
    event_bytes_max: int = 8 * 1024 * 1024
    """Longest event of a streamed reply, and longest reply that is not streamed, in bytes."""
    response_bytes_max: int = 256 * 1024 * 1024
    """Longest response of a vendor after decompression, in bytes."""

    def after_load(self) -> None:
        """Validate the prices in the environment, and read the endpoints file. Raises SettingsError."""
        given = {name: value for name, value in os.environ.items() if name.startswith(PRICE_PREFIX)}
        try:
            vars(self).update(_prices=read_prices(given, PRICE_PREFIX), _given=given)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        vars(self)["_endpoints"] = self._read_endpoints()

    @property
    def more(self) -> Mapping[str, str]:
        """The price variables, and the endpoints from the file."""
        found: Mapping[str, str] = vars(self)["_given"]
        filed = (one for one in self.endpoints if one.is_filed)
        return {**found, **{f"endpoint.{one.name}": f"{one.wire} {one.base_url}".rstrip() for one in filed}}

    @property
    def prices(self) -> Mapping[str, Price]:
        """Prices of models by alias, from the environment as of when the settings were read."""
        found: Mapping[str, Price] = vars(self)["_prices"]
        return found

    @property
    def endpoints(self) -> tuple[EndpointSpec, ...]:
        """All endpoints, from variables and the file as of when the settings were read."""
        found: tuple[EndpointSpec, ...] = vars(self)["_endpoints"]
        return found

    def _read_endpoints(self) -> tuple[EndpointSpec, ...]:
        path = Path(self.endpoints_file).expanduser() if self.endpoints_file else self.home / ENDPOINTS_FILE
        tables: Mapping[str, EndpointTable] = {}
        if self.endpoints_file or path.exists():
            try:
                tables = _tables(path)
            except (OSError, ValueError) as error:
                raise SettingsError(f"{ENDPOINTS_VARIABLE}: {path}: {error}") from None
        found = []
        for name in (*tables, *(name for name in BY_NAME if name not in tables)):
            table, preset = tables.get(name), BY_NAME.get(name)
            key = (_key_of(name, table, path) if table else None) or (self._key_of(preset) if preset else None)
            url = (getattr(self, preset.url_variable.lower()), preset.url_variable) if preset else None
            found.append(endpoint_of(name, table, url, key))
        return tuple(found)

    def _key_of(self, preset: Preset) -> Sourced:
        name = preset.key_variable
        given, file = getattr(self, name.lower()), getattr(self, f"{name.lower()}_file")
        return (given, name) if given or not file else (_read_key(Path(file), f"{name}_FILE"), f"{name}_FILE")


def _tables(path: Path) -> Mapping[str, EndpointTable]:
    """Read the file. Raises OSError, or ValueError if it is invalid or its secrets are readable by others."""
    content, exposure = read_file(path)
    tables = read_tables(content.decode())
    for name, table in tables.items():
        if exposure and table.holds_secret:
            raise ValueError(f"[endpoint.{name}] holds a secret, and {exposure}; or use key_file or key_variable")
    return tables


def _key_of(name: str, table: EndpointTable, path: Path) -> Sourced | None:
    """The key that a table names, if any. Raises SettingsError."""
    if table.key:
        return table.key.strip(), f"endpoint.{name}.key"
    if table.key_file:
        where = f"endpoint.{name}.key_file"
        return _read_key(path.parent / Path(table.key_file).expanduser(), where), where
    if table.key_variable:
        return os.environ.get(table.key_variable, "").strip(), table.key_variable
    return None
