"""Searching the shared entries of a project by their words."""

import asyncio
import time

import pytest
import pytest_asyncio
from turnwright.store.v1 import ledger_pb2
from turnwright_values.types import Tier

from contract.store.harness import (
    POSTGRESQL_ONLY,
    Client,
    Run,
    as_tier,
    new_project,
    new_run,
    remove,
    set_,
    start_store,
)
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio

WAIT_S = 60.0


@pytest_asyncio.fixture
async def server(db, tmp_path):
    """A store that does not wait long before it indexes."""
    running = await start_store(tmp_path, search_index_s=0.02)
    yield running
    await running.stop()


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def write(run, **bodies):
    """Files, by path; `__` stands for a slash and `_dot_` for a dot."""
    await write_paths(run, {path.replace("__", "/").replace("_dot_", "."): body for path, body in bodies.items()})


async def write_paths(run, bodies):
    await run.client.call("WriteEntries", **run.address, writes=[set_(path, body) for path, body in bodies.items()])


async def find(run, query, **more):
    """What a search finds once everything that was written is indexed."""
    end_s = time.monotonic() + WAIT_S
    while True:
        found = await run.client.call("SearchEntries", project=run.project, query=query, **more)
        if found.indexed_revision == found.revision:
            return found
        assert time.monotonic() < end_s, "the index does not follow"
        await asyncio.sleep(0.02)


async def paths(run, query, **more):
    return [hit.path for hit in (await find(run, query, **more)).hits]


async def test_entries_are_found_by_their_words(run):
    await write(run, a_dot_py="The quick brown fox", b_dot_py="A lazy dog", c_dot_py="nothing at all")
    found = await find(run, "FOX")
    (hit,) = found.hits
    assert (hit.path, hit.snippet) == ("a.py", "The quick brown fox")
    assert hit.revision == found.revision == found.indexed_revision
    assert await paths(run, "absent") == []
    assert set(await paths(run, "lazy fox")) == {"a.py", "b.py"}


async def test_what_no_run_sees_any_more_is_not_found(run):
    """What is removed from one run is found as long as another one sees it."""
    other = await new_run(run.client, run.project, "other")
    await write(run, a_dot_py="The quick brown fox")
    await write(other, a_dot_py="The quick red fox")
    assert await paths(run, "fox") == ["a.py"]
    await run.client.call("WriteEntries", **run.address, writes=[remove("a.py")])
    assert await paths(run, "fox") == ["a.py"]
    await run.client.call("WriteEntries", **other.address, writes=[remove("a.py")])
    assert await paths(run, "fox") == []
    await write(run, a_dot_py="The quick fox again")
    assert await paths(run, "fox") == ["a.py"]


async def test_more_and_rarer_words_rank_higher(run):
    common = {f"filler{number}": "common words of a text" for number in range(20)}
    await write_paths(run, {**common, "both": "common and peculiar", "rare": "something peculiar here"})
    best = await paths(run, "common peculiar", limit=3)
    assert best[:2] == ["both", "rare"]
    scores = [hit.score for hit in (await find(run, "common peculiar")).hits]
    assert scores == sorted(scores, reverse=True)


async def test_a_word_of_the_path_weighs_more(run):
    filler = {f"f{number}": "other text that is long enough" for number in range(10)}
    await write_paths(run, {**filler, "src/x.py": "the billing module of it", "src/billing.py": "another text of it"})
    assert await paths(run, "billing") == ["src/billing.py", "src/x.py"]


@pytest.mark.parametrize(
    ("body", "query"),
    [
        ("def parseHttpReply():", "reply"),
        ("def parseHttpReply():", "ParseHTTPReply"),
        ("class HTMLParser2:", "parser"),
        ("def parse_http_reply():", "http"),
        ("def reply():", "parseReply"),
        ("Das Café am Eck", "cafe"),
        ("the cafe", "CAFÉ"),
        ("Straße", "straße"),
        ("привет мир", "ПРИВЕТ"),
        ("配置 文件", "文件"),
        ("app.config.load(x)", "config"),
        ("see https://example.org/guide/start", "guide"),
        ("a-b/c_d", "d"),
        ("version 42", "42"),
        ("before\x00after", "after"),
        ("Die Straße", "STRASSE"),
        ("o\ufb03ce hours", "office"),
        ("\uff21\uff22\uff23 company", "abc"),
        ("re\u0301sume\u0301", "r\u00e9sum\u00e9"),
        ("r\u00e9sum\u00e9", "re\u0301sume\u0301"),
        ("chapter \u2167", "viii"),
        ("\u00bd cup", "\u00bd"),
        ("x" * 70, "x" * 70),
    ],
)
async def test_names_and_languages_are_found(run, body, query):
    await write_paths(run, {"a": body, "b": "nothing of it"})
    assert await paths(run, query) == ["a"]


async def test_the_index_follows_changes(run):
    await write(run, a="alpha", b="beta")
    assert await paths(run, "alpha") == ["a"]
    await write(run, a="gamma")
    assert await paths(run, "alpha") == []
    assert await paths(run, "gamma") == ["a"]
    assert (await find(run, "gamma")).hits[0].revision == (await find(run, "gamma")).revision


async def test_a_search_can_be_narrowed_to_schemes(run):
    await write_paths(run, {"a.py": "word", "skill://s": "word", "https://e.org/": "word"})
    assert set(await paths(run, "word")) == {"a.py", "skill://s", "https://e.org/"}
    assert await paths(run, "word", schemes=[""]) == ["a.py"]
    assert set(await paths(run, "word", schemes=["skill", "https"])) == {"skill://s", "https://e.org/"}
    assert await paths(run, "word", schemes=["known"]) == []
    assert await paths(run, "word", schemes=["\x00"]) == []


async def test_only_shared_entries_of_the_project_are_found(client, run):
    other = await new_run(client, await new_project(client, "other"))
    await write_paths(run, {"mine": "secret word", "known://private": "secret word"})
    await write_paths(other, {"theirs": "secret word", "nobody": "else"})
    assert await paths(run, "secret") == ["mine"]
    assert await paths(other, "secret") == ["theirs"]
    assert await paths(run, "theirs") == []


async def test_runs_of_one_project_find_the_same(client, run):
    other = await new_run(client, run.project)
    await write(run, a="shared word")
    assert await paths(other, "shared") == ["a"]


async def test_hits_are_limited(run):
    await write_paths(run, {f"f{number:03}": "same word" for number in range(120)})
    assert len(await paths(run, "word")) == 10
    assert len(await paths(run, "word", limit=100)) == 100
    assert await paths(run, "word", limit=2) == ["f000", "f001"]
    error = await refused(run.client.call("SearchEntries", project=run.project, query="word", limit=101))
    assert error.metadata["field"] == "limit"


async def test_a_snippet_shows_the_densest_place(run):
    filler = "lorem ipsum dolor sit amet " * 100
    await write(run, a=f"needle at first {filler} here needle and thread stand {filler} needle")
    (hit,) = (await find(run, "needle thread")).hits
    assert "needle and thread" in hit.snippet
    assert len(hit.snippet) <= 400


async def test_a_snippet_of_a_path_that_fits_is_the_beginning(run):
    await write_paths(run, {"src/needle.py": "first line\n" + "more " * 200})
    (hit,) = (await find(run, "needle")).hits
    assert hit.snippet.startswith("first line")
    assert len(hit.snippet) <= 400


async def test_the_beginning_of_a_long_body_is_indexed(run):
    """256 KiB of it, cut at a character."""
    await write(run, a="early " + "ü " * 100_000 + "late", b="ü" * 200_000)
    assert await paths(run, "early") == ["a"]
    assert await paths(run, "late") == []


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "'",
        "''' \"\"\"",
        "word AND",
        "NEAR(word, 2)",
        "word*",
        "^word",
        "path:word",
        "NOT word",
        "(word",
        "word & !word | <->",
        "word:*A",
        "{path body} : word",
        "'; DROP TABLE search; --",
        "word\x00word",
        "\\",
        "%_",
        "\u202eword",
        "word " * 400,
        "w" * 2048,
        "-word +word",
    ],
)
async def test_whatever_is_asked_for_is_words(run, query):
    """No text of a user is an operator of the database's query language."""
    await write(run, a="word", b="another")
    has_word = "word" in query.lower().replace("\x00", " ").replace("w" * 2048, "")
    assert await paths(run, query) == (["a"] if has_word else [])


@pytest.mark.parametrize("query", ["...", "\x00", " \n\t", "—…", "\u200b"])
async def test_a_query_without_words_finds_nothing(run, query):
    await write(run, a="word")
    assert await paths(run, query) == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"query": ""}, "query"),
        ({"query": "x" * 2049}, "query"),
        ({"query": "x", "schemes": ["a"] * 101}, "schemes"),
    ],
)
async def test_a_malformed_search_is_refused(run, fields, field):
    error = await refused(run.client.call("SearchEntries", project=run.project, **fields))
    assert error.metadata["field"] == field


async def test_an_unknown_project_is_not_found(client):
    error = await refused(client.call("SearchEntries", project="nowhere", query="x"))
    assert error.reason is Reason.PROJECT_NOT_FOUND


async def test_a_model_may_search(server, run):
    await write(run, a="word")
    assert await paths(run, "word") == ["a"]
    model = as_tier(server.address, Tier.MODEL)
    found = await model.call("SearchEntries", project=run.project, query="word")
    await model.close()
    assert [hit.path for hit in found.hits] == ["a"]


async def test_one_transaction_larger_than_a_piece_is_indexed_whole(run):
    await write_paths(run, {f"f{number}": f"word number{number}" for number in range(300)})
    assert await paths(run, "number299") == ["f299"]
    assert await paths(run, "number0") == ["f0"]
    assert len(await paths(run, "word", limit=100)) == 100


async def test_the_index_survives_a_restart_and_goes_on(tmp_path, server, run):
    await write(run, a="alpha")
    assert await paths(run, "alpha") == ["a"]
    await write(run, b="beta")
    await server.stop()
    again = await start_store(tmp_path, search_index_s=0.02)
    run.client = Client(again.address)
    found = [await paths(run, word) for word in ("alpha", "beta")]
    await run.client.close()
    await again.stop()
    assert found == [["a"], ["b"]]


@POSTGRESQL_ONLY
async def test_two_replicas_index_together(tmp_path, run):
    """Two replicas need a database that both reach."""
    second = await start_store(tmp_path, name="second", search_index_s=0.02)
    other = Client(second.address)
    same = Run(other, run.project, run.alias)
    for number in range(5):
        await write_paths(run, {f"a{name}": f"word first{number}" for name in range(70)})
        await write_paths(same, {f"a{name}": f"word second{number}" for name in range(0, 70, 7)})
    counts = [len(await paths(one, word, limit=100)) for one in (run, same) for word in ("word", "first4", "second4")]
    await other.close()
    await second.stop()
    assert counts == [70, 60, 10] * 2


async def test_writing_does_not_wait_for_the_index(run):
    """A search tells how far the index has come."""
    before = await find(run, "x")
    answer: ledger_pb2.WriteEntriesResponse = await run.write(set_("a", "word"))
    found = await run.client.call("SearchEntries", project=run.project, query="word")
    assert found.revision == answer.cursor.project_revision == before.revision + 1
    assert found.indexed_revision in (before.revision, found.revision)
    assert await paths(run, "word") == ["a"]
