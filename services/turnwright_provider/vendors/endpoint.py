"""One server as it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field


class Endpoint(Struct, frozen=True):
    """Where and how a server is called. `check_timeout_s` bounds a look at its list of models.

    `preset` is what the server is known as, and `usual_path` how base URLs of its kind end; both may be empty.
    `headers` is what is sent beside the wire's and our own, `extra` the fields of every request. `key_setting` says
    where the key is set, for people.
    """

    base_url: str
    api_key: str
    event_bytes_max: int
    silence_timeout_s: float
    check_timeout_s: float
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    key_setting: str = ""
    tells_cost: bool = False
    preset: str = ""
    usual_path: str = ""

    def __repr__(self) -> str:
        """Without the key, and without headers, which may hold another."""
        return f"Endpoint({self.base_url!r})"
