"""The page in chromium: a stack that serves it, and one browser for all tests of a file."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwright.types.v1 import model_pb2

from services import Services, running, token_for

CHROMIUM = shutil.which("chromium")
GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'
WAIT_S = 60
NODES_MAX = 3000
"""So many elements a page may have, however much there is to show."""


@dataclass
class Stack:
    services: Services
    browser: Any

    @property
    def url(self) -> str:
        return self.services.servers["executor"].http.url

    async def context(self, **settings: Any) -> Any:
        """A browser that was never used."""
        made = await self.browser.new_context(viewport={"width": 1400, "height": 900}, **settings)
        made.set_default_timeout(WAIT_S * 1000)
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
async def chromium(*more: str) -> AsyncIterator[Any]:
    from playwright.async_api import async_playwright

    arguments = ["--no-sandbox", *more]
    async with (
        async_playwright() as started,
        await started.chromium.launch(executable_path=CHROMIUM, args=arguments) as browser,
    ):
        yield browser


@contextlib.asynccontextmanager
async def stack(root: Path) -> AsyncIterator[Stack]:
    async with running(root, http_listen="127.0.0.1:0", client_roots=str(root)) as services, chromium() as browser:
        await services.client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
        yield Stack(services, browser)


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
