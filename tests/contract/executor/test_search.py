"""search, and pages by get: what a model and a client find on a web that stands on loopback.

Rows RU071, RU119, RU122, RU123, RU179, RU239, RU309.
"""

from __future__ import annotations

import asyncio
import json

import pytest
import pytest_asyncio
from turnwright.types.v1 import command_record_pb2

from pages_server import PagesServer, Served, found, html, redirect, typed
from services import running
from turnwright_core.errors import MissingError

pytestmark = pytest.mark.asyncio(loop_scope="module")

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
VISIBLE, SUMMARIZED, ARCHIVED = 1, 2, 3


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory):
    """The services, and the web that they reach: one server is engine and pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
        async with PagesServer() as web:
            settings = {
                "web_networks": "127.0.0.1",
                "web_searxng_url": web.url,
                "web_timeout_s": 5.0,
                # Enough for the process that reads pages to start on a busy machine; one test waits for it to pass.
                "web_prefetch_timeout_s": 3.0,
                "web_page_bytes": 100_000,
            }
            async with running(tmp_path_factory.mktemp("web"), **settings) as services:
                services.web = web
                yield services


@pytest_asyncio.fixture(loop_scope="module")
async def services(stack, request):
    """A web without pages, and a run of the test's own."""
    stack.web.pages.clear()
    stack.web.requests.clear()
    stack.events.clear()
    stack.run = f"r{abs(hash(request.node.name))}"
    return stack


async def worked(services, *replies, **settings):
    """What a run does with these replies."""
    services.script(*replies, *[DONE] * 3)
    return await services.until(await services.act(run=services.run, **settings))


async def record(services, pattern):
    (entry,) = [one async for one in services.client.list_entries(services.project, services.run, pattern)]
    return entry


async def call(services, tool, **attributes):
    return await services.client.call_tool(services.project, services.run, tool, attributes)


def kept(services):
    return services.client.list_entries(services.project, services.run, "http://**")


async def test_a_search_lists_what_the_engine_found_and_brings_the_first_pages_along(services) -> None:
    # RU119, RU123, RU179, RU292, RU309
    web = services.web
    web.pages |= {
        "/search": found(
            *({"url": f"{web.url}/{name}", "title": name.upper(), "content": f"about {name}"} for name in "abcd"),
        ),
        "/a": html("<h1>First</h1>", title="The first"),
        "/b": redirect("/a"),
        "/c": typed(b"%PDF", "application/pdf"),
    }
    await worked(services, f'<search results="4">some words</search>{GO_ON}')
    entry = await record(services, "log://turn_1/search/*")
    pages = [one async for one in kept(services)]
    assert (entry.path, entry.status) == ("log://turn_1/search/some_words", 200)
    assert entry.body == "\n".join(
        [
            "4 results. <get> opens a page; those marked + are here already.",
            *(f"1. + A\n   {web.url}/a\n   about a", f"2. + B\n   {web.url}/b\n   about b"),
            *(f"3. C\n   {web.url}/c\n   about c", f"4. D\n   {web.url}/d\n   about d"),
        ]
    )
    assert [(page.path, page.body, page.visibility) for page in pages] == [
        (f"{web.url}/a", "# First", SUMMARIZED),
        (f"{web.url}/b", "# First", SUMMARIZED),
    ]
    assert json.loads(pages[1].attributes_json) == {
        "title": "The first",
        "summary": "The first",
        "type": "text/html",
        "address": f"{web.url}/a",
    }
    assert "/d" not in web.targets


async def test_the_model_reads_what_was_found_and_the_pages_in_its_next_packet(services) -> None:
    # RU179, RU185
    web = services.web
    web.pages |= {
        "/search": found({"url": f"{web.url}/a", "title": "A"}),
        "/a": html("<p>Text.</p>", title="The first"),
    }
    await worked(services, f"<search>words</search>{GO_ON}")
    packet = (await services.client.get_entry(services.project, services.run, "user://2")).body
    assert f"1. + A\n   {web.url}/a" in packet
    assert '<http path="' in packet
    assert 'summary="The first"' in packet


async def test_a_page_that_came_along_is_not_fetched_again(services) -> None:
    # RU179
    web = services.web
    web.pages |= {"/search": found({"url": f"{web.url}/a#x", "title": "A"}), "/a": typed(b"one", "text/plain")}
    await worked(services, f'<search>q</search><get path="{web.url}/a"/>{GO_ON}', f"<search>q</search>{GO_ON}")
    page = await record(services, "http://**")
    assert (page.body, page.visibility, web.targets.count("/a")) == ("one", VISIBLE, 1)


async def test_pages_that_do_not_come_in_time_are_only_listed(services) -> None:
    # RU179
    web = services.web
    web.pages |= {
        "/search": found({"url": f"{web.url}/slow", "title": "S"}, {"url": f"{web.url}/a", "title": "A"}),
        "/slow": Served([b"x"], {"content-type": "text/plain"}, repeats=1000, pause_s=0.05),
        "/a": typed(b"one", "text/plain"),
    }
    await worked(services)
    entry = await call(services, "search", path="q")
    assert (entry.status, "1. S\n" in entry.body, "2. + A\n" in entry.body) == (200, True, True)


async def test_results_that_lead_into_the_operators_network_are_listed_and_not_opened(services) -> None:
    web = services.web
    web.pages["/search"] = found({"url": f"http://127.0.0.2:{web.port}/a", "title": "A"}, {"url": "http://10.0.0.1/"})
    await worked(services)
    entry = await call(services, "search", path="q")
    assert (entry.status, [page.path async for page in kept(services)], len(web.requests)) == (200, [], 1)


async def test_a_search_that_finds_nothing_is_an_answer(services) -> None:
    services.web.pages["/search"] = found()
    await worked(services)
    entry = await call(services, "search", path="q")
    assert (entry.status, entry.body) == (200, "Nothing was found for 'q'. Try fewer or other words.")


@pytest.mark.parametrize(
    ("attributes", "outcome"),
    [
        ({"path": " "}, "invalid:400"),
        # As in a tag, what is no number says nothing.
        ({"path": "q", "results": "many"}, "bad_gateway:502"),
        ({"path": "q"}, "bad_gateway:502"),
    ],
)
async def test_a_search_that_fails_is_a_failed_command(services, attributes, outcome) -> None:
    await worked(services)
    assert (await call(services, "search", **attributes)).outcome == outcome


async def test_a_loop_without_the_web_has_no_search_and_opens_no_page(services) -> None:
    # RU122
    web = services.web
    web.pages |= {"/a": typed(b"one", "text/plain"), "/s.md": typed(b"# S", "text/markdown")}
    await worked(services, f"<search>q</search>{GO_ON}", f'<get path="{web.url}/a"/>{GO_ON}', no_web=True)
    search, get = await record(services, "log://turn_1/search/*"), await record(services, "log://turn_2/get/**")
    assert (search.outcome, get.outcome, web.requests) == ("permission:403", "permission:403", [])
    assert get.body == f"{web.url}/a is not here, and this loop works without the web."
    await worked(services, f'<skill path="{web.url}/s.md"/>{GO_ON}', no_web=True)
    skill = await record(services, "log://turn_*/skill/**")
    assert (skill.outcome, web.requests) == ("permission:403", [])


async def test_a_loop_without_the_web_still_reads_what_is_here(services) -> None:
    # RU122
    web = services.web
    web.pages["/a"] = typed(b"one", "text/plain")
    await worked(services, f'<get path="{web.url}/a"/>{GO_ON}')
    await worked(services, f'<get path="{web.url}/a"/>{GO_ON}', no_web=True)
    entries = services.client.list_entries(services.project, services.run, "log://turn_*/get/**")
    assert [entry.status async for entry in entries] == [200, 200]


async def test_ask_mode_searches_and_opens_pages(services) -> None:
    # RU122, RU123
    web = services.web
    web.pages |= {"/search": found({"url": f"{web.url}/a", "title": "A"}), "/a": typed(b"one", "text/plain")}
    services.script(f'<search>q</search><get path="{web.url}/a"/>{GO_ON}', DONE)
    await services.until(await services.ask(run=services.run))
    assert (await record(services, "http://**")).visibility == VISIBLE


async def test_get_opens_a_page_whose_address_looks_like_a_pattern(services) -> None:
    # RU071
    web = services.web
    web.pages["/a"] = typed(b"one", "text/plain")
    address = f"{web.url}/a?id=[1]&q=%7Bx%7D"
    await worked(services, f'<get path="{address}"/>{GO_ON}')
    page = await record(services, "http://**")
    assert (page.path, page.body, page.visibility) == (address, "one", VISIBLE)


async def test_get_shows_lines_of_a_page_and_keeps_it_summarized(services) -> None:
    # RU071, RU201
    services.web.pages["/a"] = typed(b"one\ntwo\nthree", "text/plain")
    await worked(services)
    entry = await call(services, "get", path=f"{services.web.url}/a", line="2", limit="1")
    page = await record(services, "http://**")
    assert (entry.status, entry.body, page.visibility) == (200, "two", SUMMARIZED)


async def test_a_page_that_is_removed_is_fetched_anew(services) -> None:
    # RU071
    web = services.web
    web.pages["/a"] = typed(b"one", "text/plain")
    await worked(services, f'<get path="{web.url}/a"/>{GO_ON}')
    web.pages["/a"] = typed(b"two", "text/plain")
    await worked(services, f'<rm path="{web.url}/a"/><get path="{web.url}/a"/>{GO_ON}')
    assert (await record(services, "http://**")).body == "two"


@pytest.mark.parametrize(
    ("address", "outcome"),
    [
        ("http://127.0.0.2/", "permission:403"),
        ("http://localhost.localdomain.invalid/", "unreachable:502"),
        ("http://user:word@127.0.0.1/", "invalid:400"),
        ("https://", "invalid:400"),
        ("{url}/none", "not_found:404"),
    ],
)
async def test_a_page_that_does_not_open_is_a_failed_command_and_no_entry(services, address, outcome) -> None:
    # RU071, RU150
    await worked(services)
    entry = await call(services, "get", path=address.format(url=services.web.url))
    assert (entry.outcome, [page.path async for page in kept(services)]) == (outcome, [])


CALLS = {
    "get": {"path": "known://fact"},
    "env": {"command": "true"},
    "search": {"path": "q"},
    "skill": {"path": "guide.md"},
    "think": {"body": "Hm."},
    "set_plan": {"body": "Find it."},
    "update_plan": {"body": "Found."},
    "get_plan": {},
    "set": {"path": "known://fact", "body": "Water boils."},
    "cp": {"path": "known://fact", "to": "known://copy"},
    "mv": {"path": "known://copy", "to": "known://moved"},
    "rm": {"path": "known://moved"},
    "sh": {"command": "true"},
    "update": {"status": "102", "body": "On it."},
    "ask_user": {"question": "Which?"},
}


OF_LOOPS = ("delegate", "wait_agents")
"""What a client has no use for: it starts runs itself."""


async def test_a_client_calls_each_tool_by_its_name_and_needs_no_path_for_it(services) -> None:
    # RU119, RU123
    services.web.pages["/search"] = found()
    (services.files / "guide.md").write_text("# Guide\n")
    await worked(services)
    offered = [tool.name for tool in (await services.client.discover()).tools]
    outcomes = {}
    for tool in ("set", *(name for name in CALLS if name != "set")):
        attributes = dict(CALLS[tool])
        body = attributes.pop("body", "")
        entry = await services.client.call_tool(services.project, services.run, tool, attributes, body)
        outcomes[tool] = (entry.status, entry.path.split("/")[3])
    assert [name for name in offered if name not in OF_LOOPS] == [*CALLS, "undo"]
    assert outcomes == {tool: (200, tool) for tool in CALLS}


async def test_no_web_takes_the_search_engine_away(services):
    # RU122
    await worked(services, DONE)
    with_web = set((await services.client.get_run(services.project, services.run, turns_max=1)).turns[0].request.tools)
    await worked(services, DONE, no_web=True)
    without = set((await services.client.get_run(services.project, services.run, turns_max=1)).turns[0].request.tools)
    assert with_web - without == {"search"}


async def asked(services, path):
    """Waits until the web was asked for a path; a test's own limit ends the wait."""
    while path not in services.web.targets:  # noqa: ASYNC110 - it looks from outside, where nobody tells
        await asyncio.sleep(0.01)


HANGING = Served([b" "], {"content-type": "application/json"}, repeats=1000, pause_s=0.05)
QUERY = "/search?q=q&format=json"


async def test_a_search_is_repeated_by_whoever_goes_on(services) -> None:
    # architecture 11
    services.web.pages["/search"] = HANGING
    services.script(f"<search>q</search>{GO_ON}", DONE)
    queued = await services.act(run=services.run)
    await asked(services, QUERY)
    services.web.pages["/search"] = found({"url": f"{services.web.url}/a", "title": "A"})
    await services.restart("executor")
    assert (await services.until(queued)).status == 200
    entry = await record(services, "log://turn_1/search/*")
    assert (entry.status, entry.record.effect_class, services.web.targets.count(QUERY)) == (
        200,
        command_record_pb2.EFFECT_CLASS_PURE,
        2,
    )


async def test_an_abort_ends_a_search_that_waits(services) -> None:
    # RU111
    services.web.pages["/search"] = HANGING
    services.script(f"<search>q</search>{GO_ON}", DONE)
    queued = await services.act(run=services.run)
    await asked(services, QUERY)
    await services.client.abort(services.project, services.run)
    assert (await services.until(queued)).status == 499
    assert (await record(services, "log://turn_1/search/*")).outcome == "aborted:499"


async def test_without_an_engine_a_client_that_searches_is_told_what_to_configure(tmp_path, monkeypatch) -> None:
    # RU123, RU309
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as bare:
        bare.script(DONE)
        await bare.until(await bare.act())
        entry = await bare.client.call_tool(bare.project, "r", "search", {"path": "q"})
        assert (entry.outcome, "TURNWRIGHT_WEB_SEARXNG_URL" in entry.body) == ("unavailable:503", True)
        with pytest.raises(MissingError):
            await bare.entry("https://example.org/")
        refused = await bare.client.call_tool(bare.project, "r", "get", {"path": "http://127.0.0.1:1/"})
        assert refused.outcome == "permission:403"
