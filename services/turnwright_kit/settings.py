"""Settings: TURNWRIGHT_* variables, validated at the start and then frozen.

Each service has one class of them in its `config.py`; docs/settings.md is generated from these classes. Values that
nobody tunes are plain values there: no variable sets them, only code can override them. msgspec converts and validates
the values, because it imports in a tenth of the time of similar libraries, and each process reads settings.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NoReturn,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.limits import STOCK_MESSAGE_BYTES_MAX
from turnwright_core.rpc.headers import check_token
from turnwright_kit.caller_ledger import CallerLimits
from turnwright_kit.certificates import ServiceTls
from turnwright_kit.home import default_home, read_or_make_token
from turnwright_kit.identity.identity_file import IdentitySettings, read_identity_file
from turnwright_kit.identity.own_tokens import AUDIENCES, TokenKey
from turnwright_kit.telemetry import TelemetrySettings

PREFIX: Final = "TURNWRIGHT_"

_UNSET: Final[object] = object()
_NO_SETTINGS: Final[Mapping[str, Any]] = {}


class Setting(Struct, frozen=True, kw_only=True):
    """The declaration of one setting. Limits are for numbers: `ge` at least, `gt` greater than, `le` at most."""

    description: str
    default: object = _UNSET
    default_factory: Callable[[], object] | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    variables: tuple[str, ...] = ()
    """The variables that it is read from; the first one that is set wins."""
    repr: bool = True
    """Whether its value may be shown."""
    check: Callable[[object], object] | None = None
    """Validates and normalizes a value. Raises ValueError with a sentence."""
    kind: Any = str
    """Its type."""

    def get_default(self) -> object:
        return self.default_factory() if self.default_factory else self.default

    def read(self, value: object) -> object:
        """Convert a variable's text, or a value. Raises ValueError with a sentence."""
        limits = {name: limit for name in ("ge", "gt", "le") if (limit := getattr(self, name)) is not None}
        wanted = Annotated[self.kind, msgspec.Meta(**limits)] if limits else self.kind
        try:
            found = msgspec.convert(value, wanted, strict=False, dec_hook=_path)
        except msgspec.ValidationError:
            raise ValueError(f"must be {self.meaning()}") from None
        if isinstance(found, float) and not math.isfinite(found):
            raise ValueError(f"must be {self.meaning()}")
        return self.check(found) if self.check else found

    def meaning(self) -> str:
        if get_origin(self.kind) is Literal:
            *words, last = get_args(self.kind)
            return f"{', '.join(words)} or {last}"
        limits = (("of at least", self.ge), ("of more than", self.gt), ("of at most", self.le))
        bounds = " and ".join(f"{words} {limit}" for words, limit in limits if limit is not None)
        return f"{_KINDS[self.kind]} {bounds}".rstrip()


_KINDS: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
"""Descriptions of the types of settings other than choices."""


def _path(kind: type, value: object) -> Path:
    """Decoder hook of msgspec for unknown types. Raises NotImplementedError for all but paths."""
    if kind is not Path or not isinstance(value, str | Path):
        raise NotImplementedError(kind)
    return Path(value)


def setting(description: str, default: object = _UNSET, /, **known: Any) -> Any:
    """Declare a setting in a settings class; further arguments are those of `Setting`."""
    return Setting(description=description, default=default, **known)


def _checked_token(text: str) -> str:
    """A token, or empty. Raises ValueError with a sentence."""
    return check_token(text) if text else text


def _checked_tokens(text: str) -> str:
    """Tokens separated by commas. Raises ValueError with a sentence."""
    for each in filter(None, text.split(",")):
        check_token(each)
    return text


def _checked_keys(text: str) -> str:
    """Keys separated by commas. Raises ValueError with a sentence."""
    for each in filter(None, text.split(",")):
        TokenKey.parse(each)
    return text


def _checked_peer_tokens(text: str) -> str:
    """SERVICE=TOKEN, separated by commas. Raises ValueError with a sentence."""
    for each in filter(None, text.split(",")):
        service, _, token = each.partition("=")
        if service not in AUDIENCES:
            raise ValueError(f"must be SERVICE=TOKEN, separated by commas, with a service of {', '.join(AUDIENCES)}")
        check_token(token)
    return text


def checked_listen(text: str) -> str:
    """HOST:PORT, or empty. Raises ValueError with a sentence."""
    host, separator, port = text.rpartition(":")
    if text and not (separator and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError("must be HOST:PORT")
    return text


class HttpBounds(Struct, frozen=True):
    """What a port for HTTP lets clients hold."""

    connections_max: int = 1000
    """Connections at a time. For one more, that is closed which waits longest for a request or has longest answered a
    stranger; itself if callers have all."""
    head_s: float = 10.0
    """Seconds in which the head of a request must come, and the first byte of a connection."""
    body_s: float = 30.0
    """Seconds in which a request's body must come; of an upload, each part of it."""
    idle_s: int = 60
    """Seconds that a connection may be silent between two requests."""
    stalled_s: float = 60.0
    """Seconds after which a connection is lost whose client takes nothing of what is sent."""


class StaticFile(Struct, frozen=True):
    """A file that a port for HTTP serves to everybody."""

    body: bytes
    packed: bytes
    """The body for callers that accept the encoding gzip."""
    kind: str
    """Its type, as `content-type` says it."""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class HttpPort(Struct, frozen=True):
    """Where a service serves HTTP beside gRPC."""

    address: str
    origins: tuple[str, ...] = ()
    """Of pages that may call it, besides those of the same address."""
    hosts: tuple[str, ...] = ()
    """Names by which it may be called. Empty: those of this host where the address is loopback, else any."""
    bounds: HttpBounds = HttpBounds()
    files: Callable[[], Mapping[str, StaticFile]] = dict
    """Files by their path, for strangers too: they are public."""


class Settings:
    """The settings that every service reads. Keywords override variables; wrong values raise SettingsError."""

    fields: ClassVar[Mapping[str, Setting]] = {}
    """Every setting of the class, by name."""
    fixed: ClassVar[frozenset[str]] = frozenset()
    """Names of the plain values of the class."""
    runs_commands: ClassVar[bool] = False
    """Whether the commands of models run beside the service."""

    home: Path = setting("Directory for the database, token, sockets and log.", default_factory=default_home)
    token: str = setting(
        "The deployment's secret. Empty: the file `token` in the home.", "", repr=False, check=_checked_token
    )
    tokens_accepted: str = setting(
        "Further secrets that callers may use while the deployment's secret is replaced, separated by commas.",
        "",
        repr=False,
        check=_checked_tokens,
    )
    keys: str = setting(
        "Keys that verify tokens for this service, as `turnwright token key` prints them, separated by commas: for a "
        "host that must not have the deployment's secret.",
        "",
        repr=False,
        check=_checked_keys,
    )
    peer_tokens: str = setting(
        "Tokens with which this service calls others, such as `store=TOKEN,provider=TOKEN`, made by `turnwright token "
        "create --kind service`; `store=certificate`: none, its certificate says who it is. Empty: it makes them from "
        "the secret.",
        "",
        repr=False,
        check=_checked_peer_tokens,
    )
    identity: str = setting(
        "File with the issuers whose tokens count, and the certificates that name callers. Empty: `identity.toml` in "
        "the home, if there is one.",
        "",
    )
    listen: str = setting("Address that this service listens on. Empty: the service's default port on loopback.", "")
    log_level: Literal["debug", "info", "warning", "error"] = setting("Lowest severity that is logged.", "info")
    drain_s: float = setting(
        "How long calls and commands in progress may take to finish when a service is stopped, in seconds.",
        10.0,
        ge=0,
        le=600,
    )
    lame_duck_s: float = setting(
        "How long a service keeps serving after SIGTERM while its health says NOT_SERVING, in seconds, so"
        " that load balancers notice. Ctrl-C does not wait.",
        2.0,
        ge=0,
        le=600,
    )
    tls_cert: str = setting(
        "File with the certificate chain of this process, in PEM. With it, it listens with TLS, except "
        "on Unix sockets. Replaced files are read again without a restart.",
        "",
    )
    tls_key: str = setting("File with the private key of the certificate, in PEM.", "")
    tls_ca: str = setting(
        "File with the certificate authorities to trust, in PEM. With it or a certificate, services are "
        "called with TLS, except at Unix sockets. Empty: the public authorities.",
        "",
    )
    tls_mutual: bool = setting("Accept callers only with a certificate of `TURNWRIGHT_TLS_CA` (mutual TLS).", False)
    tls_name: str = setting(
        "Name that the certificates of called services must have. Empty: the host of their address.", ""
    )
    otlp_endpoint: str = setting(
        "URL of an OpenTelemetry collector (OTLP over gRPC), such as `http://collector:4317`, for traces, "
        "metrics and events. Empty: none. `OTEL_*` variables tune sampling and resource attributes.",
        "",
    )
    metrics_listen: str = setting(
        "Address at which Prometheus finds `/metrics`, such as `0.0.0.0:9464`. Empty: none.", "", check=checked_listen
    )
    ready_listen: str = setting(
        "Address at which probes find `/ready/SERVICE`, such as `0.0.0.0:9465`. Empty: none.",
        "",
        check=checked_listen,
    )
    caller_calls_max: int = setting(
        "How many calls with one answer a client may have under way at a service. More are refused with "
        "`QUEUE_FULL`. A client is the principal of a token.",
        CallerLimits().calls,
        ge=1,
    )
    caller_streams_max: int = setting(
        "How many streams, such as watches, a client may have open at a service. More are refused.",
        CallerLimits().streams,
        ge=1,
    )
    caller_unsent_bytes_max: int = setting(
        "How much a service holds for a client of answers that it has not read yet, in bytes, and as much of requests "
        "by HTTP. Further calls are refused until it has read.",
        CallerLimits().unsent_bytes,
        ge=2 * STOCK_MESSAGE_BYTES_MAX,
    )
    insecure: bool = setting(
        "Allow plaintext beyond this host, where a mesh or a private network protects connections.", False
    )

    def __init_subclass__(cls, beside: Mapping[str, Setting] = _NO_SETTINGS) -> None:
        """`beside` are settings whose names come from a table; each is text."""
        tabled = {name: _whole(name, str, field) for name, field in beside.items()}
        cls.fields = {**cls.fields, **tabled, **_declared(cls)}
        cls.fixed = cls.fixed | {name for name in cls.__annotations__ if name not in cls.fields}

    def __init__(self, **given: object) -> None:
        if unknown := given.keys() - self.fields.keys() - self.fixed:
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(sorted(unknown))}")
        vars(self).update((name, given[name]) for name in self.fixed & given.keys())
        wrong: list[str] = []
        for name, field in self.fields.items():
            variable, value = _given(field, given.get(name, _UNSET))
            try:
                vars(self)[name] = field.get_default() if value is _UNSET else field.read(value)
            except ValueError as error:
                shown = f" (it is {value!r})" if field.repr else ""
                wrong.append(f"{variable}: {error}{shown}")
        if wrong:
            raise SettingsError("\n".join(wrong))
        self.after_load()
        _ = self.tls

    def after_load(self) -> None:
        """Called once when all settings are read, for values that a class reads besides. Raises SettingsError."""

    @property
    def more(self) -> Mapping[str, str]:
        """Values that a class has read besides its settings, by variable."""
        return {}

    def copied(self, **changes: object) -> Self:
        """A copy with these values changed, without validation."""
        other = object.__new__(type(self))
        vars(other).update(vars(self), **changes)
        return other

    @property
    def telemetry(self) -> TelemetrySettings:
        return TelemetrySettings(self.otlp_endpoint, self.metrics_listen)

    @property
    def caller_limits(self) -> CallerLimits:
        """What one client may have under way."""
        return CallerLimits(self.caller_calls_max, self.caller_streams_max, self.caller_unsent_bytes_max)

    @functools.cached_property
    def tls(self) -> ServiceTls:
        """The certificates for listeners and channels. Raises SettingsError that names an unusable file."""
        chain, key, authorities = (
            Path(file).expanduser() if file else None for file in (self.tls_cert, self.tls_key, self.tls_ca)
        )
        try:
            return ServiceTls(
                chain, key, authorities, mutual=self.tls_mutual, name=self.tls_name, insecure=self.insecure
            )
        except ValueError as error:
            raise SettingsError(str(error)) from None

    def secret(self) -> str:
        """The deployment's secret; creates the token file if there is none."""
        return self.token or read_or_make_token(self.home)

    @property
    def token_keys(self) -> tuple[TokenKey, ...]:
        """Keys that verify tokens besides those of the secret."""
        return tuple(TokenKey.parse(each) for each in filter(None, self.keys.split(",")))

    @property
    def own_key(self) -> TokenKey | None:
        """What a host without the deployment's secret makes tokens for services of its own kind with."""
        return next(iter(self.token_keys), None) if self.peer_tokens else None

    def peer_token(self, service: str) -> str:
        """The token with which a service is called; empty: one that is made from the secret."""
        pairs = (each.partition("=") for each in filter(None, self.peer_tokens.split(",")))
        return next((token for name, _, token in pairs if name == service), "")

    def identities(self) -> IdentitySettings:
        """What `identity.toml` says. Raises SettingsError."""
        file = Path(self.identity).expanduser() if self.identity else self.home / "identity.toml"
        try:
            found = read_identity_file(file, is_needed=bool(self.identity))
        except ValueError as error:
            raise SettingsError(f"{error}.") from None
        has_sidecar = any(one.address for one in found.proxy)
        if found.peer and not (self.tls_mutual or has_sidecar):
            raise SettingsError(f"{file} names peers by their certificates: set TURNWRIGHT_TLS_MUTUAL to ask for them.")
        if has_sidecar and self.runs_commands:
            raise SettingsError(
                f"{file} trusts what connects from within the pod, and commands of models run there: name the proxy "
                "of executors by the `uri` of its certificate."
            )
        return found

    @property
    def secrets_accepted(self) -> tuple[str, ...]:
        """Secrets that callers may use besides the deployment's own."""
        return tuple(filter(None, self.tokens_accepted.split(",")))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings are frozen: {name}")

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name, field in self.fields.items() if field.repr)
        return f"{type(self).__name__}({', '.join(shown)})"


def _whole(name: str, kind: object, field: Setting) -> Setting:
    return replace(field, kind=kind, variables=field.variables or (f"{PREFIX}{name.upper()}",))


def _given(field: Setting, given: object) -> tuple[str, object]:
    """The variable and the value given for a setting: from a keyword, else from a variable, else none."""
    if given is not _UNSET:
        return field.variables[0], given
    variable = next((name for name in field.variables if name in os.environ), field.variables[0])
    return variable, os.environ.get(variable, _UNSET)


def _declared(kind: type[Settings]) -> dict[str, Setting]:
    """The settings that a class adds to those it inherits."""
    kinds = get_type_hints(kind)
    found = {name: value for name, value in vars(kind).items() if isinstance(value, Setting)}
    return {name: _whole(name, kinds[name], value) for name, value in found.items()}


# A class collects its settings when it is subclassed; the first one is nobody's subclass.
Settings.fields = _declared(Settings)


class PeerSettings(Settings):
    """Additional settings of a service that calls others."""

    store: str = setting("Address of the store.", "127.0.0.1:7441")
    rpc_timeout_s: float = setting("Deadline of a short call to another service, in seconds.", 30.0, gt=0, le=3600)


S = TypeVar("S", bound=Settings)


def load(kind: type[S], **overrides: object) -> S:
    """Settings from the environment; overrides that are not None win. Raises SettingsError that names the setting."""
    return kind(**{key: value for key, value in overrides.items() if value is not None})


class SettingsError(Exception):
    """One or more settings are invalid; the text has a line for each, beginning with the variable's name."""


def exit_with(error: Exception) -> NoReturn:
    sys.stderr.write(f"{error}\n")
    raise SystemExit(2)
