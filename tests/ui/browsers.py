"""The page in chromium: a stack with two teams behind an edge, and one browser for all tests of a file."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from turnwright.types.v1 import model_pb2

from edges import WAIT_S, Edge, edge
from services import SECRET, Services, running, token_for
from turnwright_client import Client
from turnwright_kit.certificates import Tls
from turnwright_ui import files

CHROMIUM = shutil.which("chromium")
GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'
NODES_MAX = 3000
"""So many elements a page may have, however much there is to show."""


@dataclass
class Stack:
    services: Services
    at: Edge
    browser: Any

    @property
    def url(self) -> str:
        return f"https://{self.at.address}"

    async def context(self, **settings: Any) -> Any:
        """A browser that was never used, to which the files of the page are served as they are to be served."""
        made = await self.browser.new_context(
            ignore_https_errors=True, viewport={"width": 1400, "height": 900}, **settings
        )
        made.set_default_timeout(WAIT_S * 1000)

        async def serve(route: Any) -> None:
            file = files()[urlsplit(route.request.url).path]
            await route.fulfill(body=file.body, headers=dict(file.headers))

        for path in files():
            await made.route(self.url + path, serve)
        return made

    @contextlib.asynccontextmanager
    async def page(self, place: str = "", name: str = "ann", **settings: Any) -> AsyncIterator[Any]:
        """The page as somebody opens it, at a place of it."""
        context = await self.context(**settings)
        try:
            page = await context.new_page()
            await page.goto(f"{self.url}/#token={token_for(name)}")
            await page.wait_for_selector("main h1")
            if place:
                await page.goto(f"{self.url}/#/{place}")
            yield page
        finally:
            await context.close()


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    from playwright.async_api import async_playwright

    arguments = ["--no-sandbox", "--disable-features=LocalNetworkAccessChecks"]
    async with (
        async_playwright() as started,
        await started.chromium.launch(executable_path=CHROMIUM, args=arguments) as browser,
    ):
        yield browser


@contextlib.asynccontextmanager
async def stack(root: Path) -> AsyncIterator[Stack]:
    async with (
        running(root, client_roots=str(root)) as services,
        edge(services, client_roots=str(root)) as at,
        Client.connect(at.address, SECRET, WAIT_S, tls=Tls(authorities=at.authority.file)) as client,
        chromium() as browser,
    ):
        services.client = client
        await client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
        yield Stack(services, at, browser)


async def nodes(page: Any) -> int:
    return await page.evaluate("document.querySelectorAll('*').length")


async def recorded(browser: Any, file: Path, text: str) -> tuple[Any, list[str]]:
    """A page that was exported, as a browser without any network opens it, and what it asked for nevertheless."""
    await asyncio.to_thread(file.write_text, text)
    context = await browser.new_context(offline=True, viewport={"width": 1400, "height": 900})
    context.set_default_timeout(WAIT_S * 1000)
    page = await context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: asked.append(str(error)))
    page.on("console", lambda message: asked.append(message.text))
    await page.goto(file.as_uri())
    await page.wait_for_selector("main h1")
    return page, [one for one in asked if one != file.as_uri() and not one.startswith("data:")]
