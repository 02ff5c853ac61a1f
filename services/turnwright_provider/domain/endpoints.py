"""Endpoints: the servers that models are called at, each a name with a wire, a URL and a key.

Presets are endpoints by themselves. The file of endpoints adds others and says more about those, a table each:

    [endpoint.work]
    url = "https://models.example.com/v1"
    key_variable = "WORK_KEY"

Source: RU306, RU307; docs/vendors.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import msgspec
from msgspec import Struct, field

from turnwright_core.errors import Reason, fault
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_core.suggestions import did_you_mean
from turnwright_provider.domain.presets import BY_NAME, NAMELESS, WIRES, Preset

SECRET_NAMES: Final = re.compile(r"key|token|secret|password|sig|code|auth", re.IGNORECASE)
"""Names of parameters and headers that contain secrets."""


def is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def public_url(url: str) -> str:
    """A URL without user, password, query and fragment; empty if it is not a URL."""
    if not is_base_url(url):
        return ""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def secrets_of(url: str) -> tuple[str, ...]:
    """The secrets in a URL: its password, and keys in its query."""
    parts = urlsplit(url)
    values = (value for name, value in parse_qsl(parts.query) if SECRET_NAMES.search(name))
    return (*filter(None, (parts.password, unquote(parts.password or ""))), *values)


def server_root(base_url: str, usual_path: str) -> str:
    """A base URL without its usual path."""
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").removesuffix(usual_path)))


def join_url(base_url: str, path: str) -> str:
    """The URL of a path below the base; the base's query, such as Azure's api-version, is kept."""
    parts = urlsplit(base_url)
    path, _, query = path.partition("?")
    queries = "&".join(filter(None, (parts.query, query)))
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, queries, ""))


SCRIPTED: Final = "scripted"
"""The vendor that replays scripted replies."""

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Valid names of vendors: the part of `vendor/model` before the first slash."""

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET_HEADER: Final = re.compile(r"(?i)(proxy-)?authorization|cookie|.*(key|token|secret)")


class EndpointTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One endpoint in the file; docs/vendors.md explains the fields."""

    preset: str = ""
    wire: str = ""
    url: str = ""
    key: str = ""
    key_file: str = ""
    key_variable: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    extra: JsonObject = field(default_factory=dict)

    @property
    def holds_secret(self) -> bool:
        """Whether it has a key, or a header that holds one."""
        return bool(self.key) or any(map(_SECRET_HEADER.fullmatch, self.headers))


class EndpointSpec(Struct, frozen=True):
    """One endpoint, completely resolved. `url_setting` and `key_setting` tell people where URL and key are set.

    `is_filed`: the endpoints file names it.
    """

    name: str
    preset: Preset
    wire: str
    url: str
    api_key: str
    url_setting: str = ""
    key_setting: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: JsonMapping = field(default_factory=dict)
    is_filed: bool = False

    def __repr__(self) -> str:
        """Without URL, key, headers and extra fields, which may contain secrets."""
        return f"EndpointSpec({self.name!r}, {self.wire!r})"

    @property
    def base_url(self) -> str:
        """The URL to call; empty if none is set."""
        return self.preset.base_url(self.url, has_key=bool(self.api_key))

    @property
    def is_unset(self) -> bool:
        """Whether none of its settings is set."""
        return not (self.url or self.api_key or self.is_filed)

    @property
    def settings(self) -> tuple[str, str]:
        return self.url_setting, self.key_setting

    @property
    def problem(self) -> str:
        """Why it cannot be called, naming the setting; empty if it can."""
        path = self.preset.bare_path or ("/v1" if self.wire == "chat" else "")
        if self.url and not is_base_url(self.url):
            return f"{self.url_setting} must be a URL such as http://127.0.0.1:8080{path}."
        if not self.base_url:
            if urlsplit(self.preset.hosted_url).hostname:
                return f"Set {self.key_setting}. (For your own server: {self.url_setting}{path and f', with {path}'}.)"
            server = "an OpenAI-compatible server" if self.wire == "chat" else f"a server that speaks {self.wire}"
            return f"Set {self.url_setting} ({server}{path and f', with {path}'})."
        if not self.api_key.isascii() or not self.api_key.isprintable():
            return f"{self.key_setting} holds characters that no key has; copy it again."
        return ""


def read_tables(text: str) -> dict[str, EndpointTable]:
    """The endpoints of a file. Raises ValueError with a line for each mistake."""
    import tomllib  # noqa: PLC0415 - few processes have such a file

    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"this is not TOML: {error}") from None
    wrong = [f"unknown table or field {name!r}: write [endpoint.NAME]" for name in found if name != "endpoint"]
    listed = found.get("endpoint", {})
    if not isinstance(listed, dict):
        wrong, listed = ["write [endpoint.NAME]"], {}
    tables: dict[str, EndpointTable] = {}
    for name, fields in listed.items():
        try:
            tables[name] = _table(name, fields)
        except (ValueError, msgspec.ValidationError) as error:
            wrong.append(f"[endpoint.{name}]: {error}")
    if wrong:
        raise ValueError("\n".join(wrong))
    return tables


def _table(name: str, fields: object) -> EndpointTable:
    if not NAME.fullmatch(name) or name == SCRIPTED:
        raise ValueError("a name is of a-z, 0-9, `.`, `_` and `-`, and `scripted` is taken")
    known = EndpointTable.__struct_fields__
    for unknown in fields.keys() - set(known) if isinstance(fields, dict) else ():
        raise ValueError(f"there is no field {unknown}{did_you_mean(unknown, known)}; there are {', '.join(known)}")
    table = msgspec.convert(fields, EndpointTable)
    if table.wire and table.wire not in WIRES:
        raise ValueError(f"there is no wire {table.wire!r}{did_you_mean(table.wire, WIRES)}; there are {_list(WIRES)}")
    if table.preset and table.preset not in BY_NAME:
        near = did_you_mean(table.preset, BY_NAME)
        raise ValueError(f"there is no preset {table.preset!r}{near}; there are {_list(BY_NAME)}")
    if sum(map(bool, (table.key, table.key_file, table.key_variable))) > 1:
        raise ValueError("give one of key, key_file and key_variable")
    for header, value in table.headers.items():
        if not _HEADER.fullmatch(header) or not value.isascii() or not value.isprintable():
            raise ValueError(f"the header {header!r} must be printable ASCII")
    return table


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


Sourced = tuple[str, str]
"""A value, and the setting or field where it was set."""


def endpoint_of(name: str, table: EndpointTable | None, url: Sourced | None, key: Sourced | None) -> EndpointSpec:
    """An endpoint, by its table in the file if there is one. URL and key are those that were found for it."""
    fields = table or EndpointTable()
    preset = BY_NAME.get(fields.preset or name, NAMELESS)
    url, key = url or ("", f"endpoint.{name}.url"), key or ("", f"endpoint.{name}.key")
    if fields.url:
        url = fields.url.strip().rstrip("/"), f"endpoint.{name}.url"
    headers = {header.lower(): value for header, value in fields.headers.items()}
    wire = fields.wire or preset.wire_of(url[0])
    return EndpointSpec(name, preset, wire, url[0], key[0], url[1], key[1], headers, fields.extra, table is not None)


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
