"""Asking a search engine over real HTTP: what it is asked, and what is believed of its answer. Rows RU179, RU309."""

from __future__ import annotations

import pytest
import pytest_asyncio

from pages_server import PagesServer, Served, found, redirect, typed
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.tools.ports import WebError, WebResult
from turnwright_executor.web.web import HttpWeb

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def server():
    async with PagesServer() as made:
        yield made


async def refused(awaitable) -> WebError:
    with pytest.raises(WebError) as caught:
        await awaitable
    return caught.value


def limits(searxng_url: str) -> ExecutorSettings:
    """No network is open: the engine is the operator's own."""
    return ExecutorSettings(web_searxng_url=searxng_url)


def engine(server: PagesServer) -> HttpWeb:
    return HttpWeb(limits(f"http://me:s3cret@127.0.0.1:{server.port}/se"))


async def test_the_engine_is_asked_in_json_wherever_the_operator_has_it(server) -> None:
    server.pages["/se/search"] = found({"url": "https://e.org/a", "title": "A", "content": "about  a"})
    hits = await engine(server).search("a b&c", 5)
    assert hits == [WebResult("https://e.org/a", "A", "about a")]
    assert server.targets == ["/se/search?q=a+b%26c&format=json"]
    assert server.requests[0].headers["authorization"] == "Basic bWU6czNjcmV0"


async def test_what_is_no_result_is_left_out_and_texts_are_one_line(server) -> None:
    server.pages["/se/search"] = found(
        {"url": "https://e.org/a", "title": "T\x1b[0m\n" + "t" * 500, "content": None},
        {"url": "HTTPS://E.org/a#twice", "title": "again"},
        {"url": "javascript:alert(1)"},
        {"url": "https://user:word@e.org/"},
        {"url": "https://e.org/" + "x" * 600},
        {"url": 7},
        {"url": "https://e.org/\ud800"},
        {"url": "https://e\udfff.org/"},
        {"title": "no url"},
        "no result",
        {"url": "http://e.org", "title": 7, "content": "c" * 500},
        {"url": "https://e.org/third"},
    )
    hits = await engine(server).search("q", 2)
    assert hits == [
        WebResult("https://e.org/a", "T [0m " + "t" * 113 + "…", ""),
        WebResult("http://e.org/", "http://e.org/", "c" * 239 + "…"),
    ]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Served((), {}, 403), "search: formats:"),
        (Served((), {}, 429), "HTTP 429"),
        (redirect("http://127.0.0.1:1/"), "HTTP 302"),
        (typed(b"<html>", "text/html"), "something other than JSON"),
        (typed(b"[" * 100_000, "application/json"), "something other than JSON"),
        (typed(b"\xff\xfe\xfd", "application/json"), "something other than JSON"),
        (typed(b"9" * 10_000, "application/json"), "JSON"),
        (typed(b'{"results": {}}', "application/json"), "no results"),
        (Served([b"no gzip"], {"content-encoding": "gzip"}), "broke off"),
        (Served([b"[1," * 100_000], {"content-type": "application/json"}, repeats=10**6), "more than"),
    ],
)
async def test_an_engine_that_does_not_answer_as_one_is_reported_without_its_secrets(server, answer, words) -> None:
    server.pages["/se/search"] = answer
    error = await refused(engine(server).search("q", 5))
    assert (error.outcome, words in str(error), "s3cret" in str(error)) == ("bad_gateway:502", True, False)


async def test_without_an_engine_a_search_says_what_to_configure() -> None:
    error = await refused(HttpWeb(limits("")).search("q", 5))
    assert (error.outcome, "TURNWRIGHT_WEB_SEARXNG_URL" in str(error)) == ("unavailable:503", True)
