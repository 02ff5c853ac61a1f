"""Fetching from a real server on loopback: what is reached, how much of it is read, what it becomes. Rows RU179, RU309."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
import zlib
from ipaddress import ip_network

import pytest
import pytest_asyncio

from pages_server import PagesServer, Served, html, redirect, typed
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.tools.ports import Download, Page, WebError
from turnwright_executor.web.fetch import Fetcher, FetchLimits
from turnwright_executor.web.web import FETCHES_MAX, HttpWeb

pytestmark = pytest.mark.asyncio

LIMITS = ExecutorSettings(web_networks="127.0.0.1", web_page_bytes=100_000, web_text_bytes=50_000, web_redirects_max=3)
LOOPBACK = (ip_network("127.0.0.0/8"),)


@pytest_asyncio.fixture
async def server():
    async with PagesServer() as made:
        yield made


async def refused(awaitable) -> WebError:
    with pytest.raises(WebError) as caught:
        await awaitable
    return caught.value


async def test_a_page_is_text_with_its_links_and_without_what_is_around_it(server) -> None:
    body = "<nav>menu</nav><h1>Ü</h1><script>x</script><p>See <a href='/b'>b</a>.</p><ul><li>one<li>two</ul>"
    server.pages["/a"] = html(body, title="A &amp; Ü")
    page = await HttpWeb(LIMITS).page(f"{server.url}/a")
    text = f"# Ü\n\nSee [b]({server.url}/b).\n\n- one\n- two"
    assert page == Page(f"{server.url}/a", "A & Ü", text, "text/html")


async def test_a_request_says_who_asks_and_carries_nothing_else(server) -> None:
    server.pages["/a"] = Served([b"x"], {"content-type": "text/plain", "set-cookie": "a=b"})
    web = HttpWeb(LIMITS)
    await web.page(f"{server.url}/a")
    await web.page(f"{server.url}/a")
    asked = server.requests[1].headers
    assert asked["user-agent"].startswith("turnwright/")
    assert asked["host"] == f"127.0.0.1:{server.port}"
    assert not {"cookie", "authorization", "referer"} & asked.keys()


@pytest.mark.parametrize(
    ("data", "content_type", "text"),
    [
        ("grün".encode("latin-1"), "text/plain; charset=iso-8859-1", "grün"),
        ("“grün”".encode("cp1252"), "text/plain; charset=iso-8859-1", "“grün”"),
        ("grün".encode("latin-1"), "text/plain; charset=utf-8", "gr\ufffdn"),
        ("grün".encode("latin-1"), "text/plain", "grün"),
        ("grün".encode(), "text/plain; charset=klingon", "grün"),
        ("grün".encode(), "text/plain; charset=unicode_escape", "grün"),
        (b"YQ==", "text/plain; charset=base64", "YQ=="),
        ("grün".encode("utf-16"), "text/plain", "grün"),
        ("grün".encode("utf-16-le"), "text/plain; charset=utf-16", "grün"),
        ("grün".encode("utf-16-be"), "text/plain; charset=utf-16be", "grün"),
        ("grün".encode("utf-32-le"), "text/plain; charset=utf-32", "grün"),
        ("grün".encode("utf-16-le") + b"!", "text/plain; charset=utf-16", "grün\ufffd"),
        ("漢字".encode("shift_jis"), "text/plain; charset=Shift_JIS", "漢字"),
        (b"a\0b\r\nc", "text/plain", "ab\nc"),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"plain", "", "plain"),
    ],
)
async def test_characters_are_those_of_the_charset_that_fits(server, data, content_type, text) -> None:
    server.pages["/a"] = typed(data, content_type)
    assert (await HttpWeb(LIMITS).page(f"{server.url}/a")).text == text


async def test_a_page_says_its_charset_itself(server) -> None:
    data = b'<html><head><meta charset="windows-1251"></head><body><p>' + "мир".encode("cp1251") + b"</p></body></html>"
    server.pages["/a"] = typed(data, "text/html")
    assert (await HttpWeb(LIMITS).page(f"{server.url}/a")).text == "мир"


async def test_a_page_that_calls_itself_utf_16_in_single_bytes_is_not(server) -> None:
    data = '<html><head><meta charset="utf-16"></head><body><p>grün</p></body></html>'.encode()
    server.pages["/a"] = typed(data, "text/html")
    assert (await HttpWeb(LIMITS).page(f"{server.url}/a")).text == "grün"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [(b"%PDF-1.7", "application/pdf"), (b"\x89PNG", "image/png"), (b"\0\1\2", "application/octet-stream")],
)
async def test_what_is_no_text_is_no_page(server, data, media_type) -> None:
    server.pages["/a"] = typed(data, media_type)
    error = await refused(HttpWeb(LIMITS).page(f"{server.url}/a"))
    assert (error.outcome, media_type in str(error)) == ("unsupported:415", True)


async def test_a_redirect_is_followed_and_the_page_says_where_it_was_found(server) -> None:
    server.pages |= {
        "/a": redirect("b"),
        "/b": redirect(f"{server.url}/c#part", 308),
        "/c": typed(b"there", "text/plain"),
    }
    page = await HttpWeb(LIMITS).page(f"{server.url}/a")
    assert (page.address, page.text) == (f"{server.url}/c", "there")


@pytest.mark.parametrize(
    "to",
    [
        "http://127.0.0.2:1/",
        "http://127.1.2.3:1/",
        "http://[::1]:1/",
        "http://[::ffff:10.0.0.1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://2130706434/",
        "http://0x7f.2/",
        "http://0/",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1/",
        "unix:/run/docker.sock",
        "http://user:s3cret@127.0.0.1/",
        "http://[broken",
    ],
)
async def test_a_redirect_to_where_commands_may_not_go_is_not_followed(server, to) -> None:
    server.pages["/a"] = redirect(to)
    error = await refused(HttpWeb(LIMITS).page(f"{server.url}/a"))
    assert error.outcome == "permission:403"
    assert len(server.requests) == 1
    assert "s3cret" not in str(error)


async def test_redirects_have_an_end(server) -> None:
    server.pages["/a"] = redirect("/a")
    error = await refused(HttpWeb(LIMITS).page(f"{server.url}/a"))
    assert (error.outcome, len(server.requests)) == ("bad_gateway:502", 4)


async def test_without_a_setting_this_host_is_not_reached(server) -> None:
    server.pages["/a"] = typed(b"secret", "text/plain")
    error = await refused(HttpWeb(LIMITS.copied(web_networks="")).page(f"{server.url}/a"))
    assert (error.outcome, server.requests) == ("permission:403", [])


async def test_a_name_is_resolved_once_and_the_connection_goes_to_what_was_checked(server) -> None:
    asked = []

    async def resolve(host, port):
        # The second answer is what DNS rebinding would send.
        asked.append((host, port))
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    server.pages["/a"] = typed(b"x", "text/plain")
    fetcher = Fetcher(FetchLimits(5.0, 0, LOOPBACK), resolve)
    fetched = await fetcher.fetch(f"http://rebinding.test:{server.port}/a", 1000)
    assert (fetched.data, asked) == (b"x", [("rebinding.test", server.port)])
    assert server.requests[0].headers["host"] == f"rebinding.test:{server.port}"


@pytest.mark.parametrize("answers", [["127.0.0.1", "10.0.0.1"], ["fd00::1"], ["::ffff:192.168.0.1"], []])
async def test_one_address_that_is_not_for_commands_closes_the_whole_name(server, answers) -> None:
    async def resolve(host, port):
        return answers

    fetcher = Fetcher(FetchLimits(5.0, 0, LOOPBACK), resolve)
    error = await refused(fetcher.fetch(f"http://mixed.test:{server.port}/a", 1000))
    assert (error.outcome, server.requests) == ("permission:403", [])


async def test_the_next_address_is_tried_where_one_accepts_no_connection(server) -> None:
    async def resolve(host, port):
        return ["127.0.0.3", "127.0.0.1"]

    server.pages["/a"] = typed(b"x", "text/plain")
    fetched = await Fetcher(FetchLimits(5.0, 0, LOOPBACK), resolve).fetch(f"http://two.test:{server.port}/a", 1000)
    assert fetched.data == b"x"


async def test_a_name_that_nobody_knows_is_unreachable() -> None:
    async def resolve(host, port):
        raise OSError("no such host")

    error = await refused(Fetcher(FetchLimits(5.0, 0), resolve).fetch("http://nobody.test/", 1000))
    assert (error.outcome, str(error)) == (
        "unreachable:502",
        "The name of nobody.test cannot be resolved; check its spelling.",
    )


async def test_an_endless_page_is_read_to_the_limit(server) -> None:
    server.pages["/a"] = Served([b"x" * 10_000], {"content-type": "text/plain"}, repeats=10**9)
    page = await HttpWeb(LIMITS.copied(web_text_bytes=10**6)).page(f"{server.url}/a")
    assert (len(page.text), page.is_cut) == (LIMITS.web_page_bytes, True)


async def test_of_a_long_text_the_beginning_is_kept(server) -> None:
    server.pages["/a"] = html("<p>word</p>" * 5000 + "end")
    page = await HttpWeb(LIMITS.copied(web_text_bytes=1001)).page(f"{server.url}/a")
    assert (len(page.text), page.is_cut, page.text[:10]) == (1001, True, "word\n\nword")


async def test_a_page_that_is_cut_inside_of_a_character_is_still_what_it_is(server) -> None:
    server.pages["/a"] = typed("ü".encode() * 1000, "text/plain; charset=utf-8")
    page = await HttpWeb(LIMITS.copied(web_page_bytes=1025)).page(f"{server.url}/a")
    assert (page.text, page.is_cut) == ("ü" * 512, True)


async def test_a_slow_page_ends_in_time(server) -> None:
    server.pages["/a"] = Served([b"x"], {"content-type": "text/plain"}, repeats=10**9, pause_s=0.05)
    error = await refused(HttpWeb(LIMITS.copied(web_timeout_s=0.3)).page(f"{server.url}/a"))
    assert error.outcome == "timeout:504"


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate"])
async def test_a_packed_page_is_unpacked(server, coding) -> None:
    packed = zlib.compress(b"text") if coding == "deflate" else gzip.compress(b"text")
    server.pages["/a"] = Served([packed], {"content-type": "text/plain", "content-encoding": coding})
    assert (await HttpWeb(LIMITS).page(f"{server.url}/a")).text == "text"


async def test_what_a_small_answer_unpacks_to_costs_no_more_than_the_limit(server) -> None:
    # A hundred million bytes in a hundred thousand.
    bomb = gzip.compress(b"0" * 100_000_000, compresslevel=1)
    server.pages["/a"] = Served([bomb], {"content-type": "text/plain", "content-encoding": "gzip"})
    page = await HttpWeb(LIMITS.copied(web_text_bytes=10**6)).page(f"{server.url}/a")
    assert (len(page.text), page.is_cut) == (LIMITS.web_page_bytes, True)


@pytest.mark.parametrize(
    ("headers", "data", "outcome"),
    [
        ({"content-encoding": "zstd"}, b"x", "unsupported:415"),
        ({"content-encoding": "br"}, b"x", "unsupported:415"),
        ({"content-encoding": "gzip, gzip"}, b"x", "unsupported:415"),
        ({"content-encoding": "gzip"}, b"this is no gzip", "bad_gateway:502"),
        ({"content-encoding": "gzip"}, gzip.compress(b"the end is missing" * 9, mtime=0)[:-9], "bad_gateway:502"),
        ({"content-length": "1000"}, b"short", "bad_gateway:502"),
    ],
)
async def test_a_body_that_is_not_what_its_head_says_is_an_error(server, headers, data, outcome) -> None:
    server.pages["/a"] = Served([data], {"content-type": "text/plain", **headers})
    assert (await refused(HttpWeb(LIMITS).page(f"{server.url}/a"))).outcome == outcome


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(404, "not_found:404"), (410, "not_found:404"), (403, "bad_gateway:502"), (503, "bad_gateway:502")],
)
async def test_what_a_server_refuses_is_reported(server, status, outcome) -> None:
    server.pages["/a"] = Served((), {}, status)
    error = await refused(HttpWeb(LIMITS).page(f"{server.url}/a"))
    assert (error.outcome, str(status) in str(error)) == (outcome, True)


async def test_where_nothing_listens_there_is_no_connection(server) -> None:
    error = await refused(HttpWeb(LIMITS).page("http://127.0.0.1:1/"))
    assert (error.outcome, str(error)) == ("unreachable:502", "127.0.0.1 accepts no connection.")


@pytest.mark.parametrize("deep", ["<div>", "<b>", "<ul><li>", "<table><tr><td>", "<blockquote>", "<"])
async def test_a_page_that_is_made_to_be_unreadable_is_read_in_time(server, deep) -> None:
    data = deep.encode() * (90_000 // len(deep)) + b"<p>end"
    server.pages["/a"] = typed(data, "text/html")
    # Whoever does not come to an end within the deadline raises.
    page = await HttpWeb(LIMITS.copied(web_timeout_s=20.0)).page(f"{server.url}/a")
    assert page.media_type == "text/html"


BLOWN_UP = {
    "a table": "<table><tr>" + "<td>x" * 1000 + "<tr><td>y" * 8000,
    "long addresses": f"<base href='https://e.org/{'x' * 20_000}/'>" + "<a href=r>l</a> " * 4000,
    "spans": "<table>" + "<tr><td rowspan=60000 colspan=1000>x" * 2000,
}


@pytest.mark.parametrize("body", BLOWN_UP.values(), ids=BLOWN_UP.keys())
async def test_what_a_page_becomes_is_no_more_than_the_limit(server, body) -> None:
    server.pages["/a"] = typed(body.encode(), "text/html")
    page = await HttpWeb(LIMITS).page(f"{server.url}/a")
    assert (0 < len(page.text) <= LIMITS.web_text_bytes, page.is_cut) == (True, True)


@pytest.mark.slow
async def test_a_page_that_is_too_much_for_its_reader_is_the_end_of_that_page_alone(server) -> None:
    # Ten thousand bytes for each of its addresses: two gigabytes.
    body = f"<base href='https://e.org/{'x' * 100_000}/'>" + "<a href=r>l</a> " * 20_000
    server.pages |= {"/a": typed(body.encode(), "text/html"), "/b": html("<p>small</p>")}
    web = HttpWeb(LIMITS.copied(web_page_bytes=10**6, timeout_s=25.0))
    error = await refused(web.page(f"{server.url}/a"))
    assert (error.outcome, (await web.page(f"{server.url}/b")).text) == ("unsupported:415", "small")


async def test_a_host_that_is_no_name_is_refused(server) -> None:
    server.pages["/a"] = redirect("http://xn--/")
    errors = [await refused(HttpWeb(LIMITS).page(url)) for url in ("http://xn--/", f"{server.url}/a")]
    assert {error.outcome for error in errors} <= {"invalid:400", "unreachable:502"}


def certified(folder, name) -> ssl.SSLContext:
    """A server that can show who it is to whoever trusts its certificate, `cert` in the folder."""
    cert, key = folder / "cert", folder / "key"
    wanted = [
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        f"/CN={name}",
        "-addext",
        f"subjectAltName=DNS:{name}",
    ]
    subprocess.run(["openssl", "req", "-x509", *wanted, "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


async def test_tls_speaks_to_the_name_although_the_connection_goes_to_the_number(tmp_path, monkeypatch) -> None:
    async def resolve(host, port):
        return ["127.0.0.1"]

    tls = certified(tmp_path, "page.test")
    async with PagesServer({"/a": typed(b"x", "text/plain")}, tls=tls) as server:
        address = f"page.test:{server.port}/a"
        stranger = await refused(Fetcher(FetchLimits(5.0, 0, LOOPBACK), resolve).fetch(f"https://{address}", 100))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert"))
        trusting = Fetcher(FetchLimits(5.0, 0, LOOPBACK), resolve)
        fetched = await trusting.fetch(f"https://{address}", 100)
        other = await refused(trusting.fetch(f"https://other.test:{server.port}/a", 100))
    assert (fetched.data, len(server.requests)) == (b"x", 1)
    assert [(error.outcome, "certificate" in str(error)) for error in (stranger, other)] == [
        ("unreachable:502", True)
    ] * 2


async def test_a_download_is_whole_or_nothing(server) -> None:
    server.pages["/a.zip"] = typed(b"PK\x03\x04" + b"x" * 100, "application/zip")
    web = HttpWeb(LIMITS)
    download = await web.download(f"{server.url}/a.zip", 104)
    assert download == Download(f"{server.url}/a.zip", "application/zip", b"PK\x03\x04" + b"x" * 100)
    assert (await refused(web.download(f"{server.url}/a.zip", 103))).outcome == "too_large:413"


async def test_fetches_that_wait_for_a_place_have_their_deadline_too(server) -> None:
    server.pages["/a"] = Served([b"x"], {"content-type": "text/plain"}, repeats=100, pause_s=0.05)
    web = HttpWeb(LIMITS.copied(web_timeout_s=0.5))
    errors = await asyncio.gather(*(refused(web.page(f"{server.url}/a")) for _ in range(40)))
    assert [error.outcome for error in errors] == ["timeout:504"] * 40
    # One that is over may leave its place to another just before that one is over too.
    assert len(server.requests) <= 2 * FETCHES_MAX < 40
