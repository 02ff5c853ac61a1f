"""The resolved configuration of one server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field


class Endpoint(Struct, frozen=True):
    """Where and how a server is called. `check_timeout_s` is the timeout for its list of models.

    `preset` is the known vendor, and `usual_path` the usual end of its base URLs; both may be empty. `headers` are sent
    in addition to the wire's and our own, `extra` are fields of every request. `key_setting` tells people where the key
    is set.
    """

    base_url: str
    api_key: str
    event_bytes_max: int
    silence_timeout_s: float
    check_timeout_s: float
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    key_setting: str = ""
    reports_cost: bool = False
    preset: str = ""
    usual_path: str = ""

    def __repr__(self) -> str:
        """Without the key, and without headers, which may contain another."""
        return f"Endpoint({self.base_url!r})"
