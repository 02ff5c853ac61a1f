"""The null web adapter: every command that needs the web fails with an explanation."""

from __future__ import annotations

from typing import NoReturn

from turnwright_executor.tools.ports import Download, Page, WebError, WebResult

TEXT = "This runtime has no web access. Continue with what the project has."


class Offline:
    """Implements tools.ports.Web."""

    async def page(self, address: str) -> Page:  # noqa: ARG002
        """Raises WebError."""
        _refuse()

    async def download(self, address: str, bytes_max: int) -> Download:  # noqa: ARG002
        """Raises WebError."""
        _refuse()

    async def search(self, query: str, results_max: int) -> list[WebResult]:  # noqa: ARG002
        """Raises WebError."""
        _refuse()


def _refuse() -> NoReturn:
    raise WebError("unavailable:503", TEXT)
