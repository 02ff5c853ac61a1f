"""Which vendors of models there are: the provider's and its plugins'."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

CheckVendor = Callable[[str], Awaitable[None]]
"""Refuses a `vendor/model` of a vendor that there is not. Raises INVALID_FIELD."""
