"""`@turnwright/client` in chromium: the tour at an executor's HTTP port and behind the edge, and the hook in React and in Preact."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from turnwright.types.v1 import model_pb2

from edges import ORIGIN, edge
from needs import needs
from polyglot.packed import MODULES, needs_node, packed, run
from polyglot.test_clients import SCRIPT, Cursors, Way, finished, resumed
from proxy import proxied
from services import SECRET, running, token_for
from turnwright_client import Client
from turnwright_core.rpc.certificates import Tls
from ui.browsers import CHROMIUM, DONE, GO_ON, WAIT_S, chromium, stack

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    needs_node,
    needs("chromium", "apt-get install chromium", there=CHROMIUM),
]
in_loop = pytest.mark.asyncio(loop_scope="module")
PREACT = {"react": "preact/compat", "react-dom": "preact/compat"}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> Path:
    """The pages of tests with what npm packs."""
    package = packed(
        tmp_path_factory.mktemp("packed"), "@connectrpc/connect-web", "react", "react-dom", "scheduler", "preact"
    )
    common = [str(MODULES / ".bin" / "esbuild"), "--bundle", "--format=esm", "--log-level=warning", "--jsx=automatic"]
    run([*common, "tour_page.js", "--outfile=tour.js"], package.folder)
    run([*common, "hook_page.tsx", "--define:process.env.NODE_ENV='production'", "--outfile=react.js"], package.folder)
    run(
        [*common, "hook_page.tsx", *(f"--alias:{a}={b}" for a, b in PREACT.items()), "--outfile=preact.js"],
        package.folder,
    )
    return package.folder


async def opened(context: Any, bundle: Path, origin: str, given: dict[str, Any]) -> Any:
    """A page of this origin with one script."""
    page = await context.new_page()
    page.set_default_timeout(WAIT_S * 1000)
    html = '<!doctype html><meta charset="utf-8"><body><script type="module" src="bundle.js"></script>'
    await page.route(f"{origin}/of-test/", lambda route: route.fulfill(content_type="text/html", body=html))
    await page.route(f"{origin}/of-test/bundle.js", lambda route: route.fulfill(path=bundle))
    await page.goto(f"{origin}/of-test/#{quote(json.dumps(given))}")
    return page


async def toured(way: Way, page: Any, proxy: Any, root: Path) -> None:
    await page.wait_for_function("document.querySelector('pre')?.textContent.includes('Hello')")
    proxy.reset()
    ended = await page.wait_for_selector("pre[data-ended]")
    printed = await ended.text_content()
    assert await ended.get_attribute("data-ended") == "well", printed
    await finished(way, root, printed)


# ---- The tour


@in_loop
async def test_the_tour_works_at_the_http_port_and_survives_a_cut(bundles, tmp_path):
    (tmp_path / "m.txt").write_text(SCRIPT)
    root = tmp_path / "toured"
    root.mkdir()
    async with stack(tmp_path) as at, proxied(at.url.removeprefix("http://"), is_opaque=True) as proxy:
        origin = f"http://{proxy.address}"
        context = await at.context()
        given = {"address": origin, "token": token_for("web"), "rest": [str(root), "m", "Say hello."]}
        page = await opened(context, bundles / "tour.js", origin, given)
        await toured(Way(tmp_path, at.url, at.services.client, Cursors()), page, proxy, root)
        await context.close()


@in_loop
@pytest.mark.parametrize("has_certificate", [False, True], ids=["token", "certificate"])
async def test_the_tour_works_behind_the_edge_and_survives_a_cut(bundles, tmp_path, has_certificate):
    (tmp_path / "m.txt").write_text(SCRIPT)
    root = tmp_path / "toured"
    root.mkdir()
    cursors = Cursors()
    async with (
        running(tmp_path, [cursors], client_roots=str(tmp_path)) as services,
        edge(services, observers=[cursors], client_roots=str(tmp_path)) as behind,
        Client.connect(behind.address, SECRET, 60, tls=Tls(authorities=behind.authority.file)) as client,
        proxied(behind.mutual if has_certificate else behind.address, is_opaque=True) as proxy,
        # The page comes from no address, which chromium takes for a public one, and the edge is on this host.
        chromium("--disable-features=LocalNetworkAccessChecks") as browser,
    ):
        await client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
        at = f"https://{proxy.address}"
        own = behind.clients.issue(tmp_path / "web.tls")
        certificate = {"origin": at, "certPath": own / "cert.pem", "keyPath": own / "key.pem"}
        context = await browser.new_context(
            ignore_https_errors=True, client_certificates=[certificate] if has_certificate else []
        )
        given = {"address": at, "token": token_for("web"), "rest": [str(root), "m", "Say hello."]}
        page = await opened(context, bundles / "tour.js", ORIGIN, given)
        way = Way(tmp_path, behind.mutual, client, cursors, behind)
        await toured(way, page, proxy, root)
        await resumed(way, root)


# ---- The hook


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory):
    async with stack(tmp_path_factory.mktemp("hook")) as made:
        yield made


@in_loop
@pytest.mark.parametrize("library", ["react", "preact"])
async def test_a_run_is_shown_as_it_goes_on_until_its_component_is_gone(at, bundles, library):
    (at.services.files / f"{library}.txt").write_text("kept\n")
    at.services.script(f"<sh>echo {library}</sh>{GO_ON}", DONE)
    queued = await at.services.act("Work.", run=library, yolo=False)
    await at.services.until(queued, 202)
    async with proxied(at.url.removeprefix("http://"), is_opaque=True) as proxy:
        origin = f"http://{proxy.address}"
        context = await at.context()
        given = {"token": token_for("ann"), "project": at.services.project, "run": library}
        page = await opened(context, bundles / f"{library}.js", origin, given)
        await page.locator("main pre").wait_for(state="attached")
        proxy.reset()
        [proposal] = (await at.services.client.get_run(at.services.project, library)).proposals
        await at.services.client.resolve(at.services.project, library, proposal, accept=True)
        await page.locator("main pre", has_text="Done.").wait_for()
        async with page.expect_event("requestfailed") as ended:
            await page.get_by_role("button").click()
        assert (await ended.value).url.endswith("/WatchRun")
        await asyncio.wait_for(page.locator("main pre").wait_for(state="detached"), WAIT_S)
        await context.close()


@in_loop
@pytest.mark.parametrize("library", ["react", "preact"])
async def test_a_run_that_is_not_there_is_an_error_with_a_name(at, bundles, library):
    context = await at.context()
    given = {"token": token_for("ann"), "project": at.services.project, "run": "no-such"}
    page = await opened(context, bundles / f"{library}.js", at.url, given)
    assert await page.get_by_role("alert").text_content() == "RUN_NOT_FOUND"
    await context.close()
