"""Which vendors of models there are: the provider's and its plugins'."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

CheckVendor = Callable[[str, str], Awaitable[None]]
"""Refuses a `vendor/model` of a vendor that there is not, naming the field that holds it. Raises INVALID_FIELD."""
