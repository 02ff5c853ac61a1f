"""A report of settings without secrets, with a digest by which two values can be compared unseen."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator
from typing import Final

from turnwright.settings.v1 import settings_service_pb2 as pb
from turnwright.settings.v1 import settings_service_pb2_grpc
from turnwright.types.v1 import setting_pb2

from turnwright_kit.settings import Settings

_SECRET_NAMES: Final = re.compile(r"token|key|secret|password", re.IGNORECASE)
_URL: Final = re.compile(r"://(?P<user>\S*@)?(?P<place>[^\s?#]*)(?P<query>[?#]\S*)?")
_DIGEST_CHARS: Final = 32


def shown_value(name: str, value: object, *, is_repr: bool) -> str:
    """A value for display: a secret is only reported as set, and a URL loses its user, password and query."""
    if not is_repr or _SECRET_NAMES.search(name):
        return "(set)" if value else "(not set)"
    return _URL.sub(_without_secrets, str(value))


def _without_secrets(url: re.Match[str]) -> str:
    return f"://{'***@' if url['user'] else ''}{url['place']}{'?***' if url['query'] else ''}"


def settings_in_force(settings: Settings) -> Iterator[setting_pb2.Setting]:
    """Every setting that differs from its default, sorted by variable."""
    secret = settings.secret()
    for name, field in settings.fields.items():
        value = getattr(settings, name)
        if value != field.get_default():
            shown = shown_value(name, value, is_repr=field.repr)
            yield _as_setting(field.variables[0], str(value), shown, secret)
    for variable, text in settings.more.items():
        yield _as_setting(variable, text, shown_value("", text, is_repr=True), secret)


def _as_setting(variable: str, value: str, shown: str, secret: str) -> setting_pb2.Setting:
    digest = hmac.new(secret.encode(), f"{variable}\0{value}".encode(errors="replace"), hashlib.sha256).hexdigest()
    return setting_pb2.Setting(variable=variable, value=shown, digest=digest[:_DIGEST_CHARS])


class SettingsReporter(settings_service_pb2_grpc.SettingsServiceServicer):
    """Reports the settings of one service to the services of the deployment, and to holders of its secret."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def GetSettings(  # noqa: N802 - the contract's name
        self,
        request: pb.GetSettingsRequest,  # noqa: ARG002
        context: object,  # noqa: ARG002
    ) -> pb.GetSettingsResponse:
        return pb.GetSettingsResponse(settings=sorted(settings_in_force(self._settings), key=lambda one: one.variable))
