"""The port to the list of vendors: the provider's and its plugins'."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

CheckVendor = Callable[[str, str], Awaitable[None]]
"""Refuses a `vendor/model` of an unknown vendor, naming the request's field. Raises INVALID_FIELD."""
