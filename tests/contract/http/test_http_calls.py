"""Calls by HTTP reach the handlers that gRPC reaches, with the same rights, limits and errors."""

from __future__ import annotations

import asyncio
import base64
import json
import struct

import grpc
import pytest
import pytest_asyncio
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2

from contract.http.doors import ANN, EXECUTOR, METHODS, UNARY, bearer, open_door, reason_of
from services import SECRET, token_for
from turnwright_core.errors import Reason
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.rpc.headers import call_metadata

pytestmark = pytest.mark.asyncio(loop_scope="module")

CODES = {code.name.lower().replace("cancelled", "canceled"): code for code in grpc.StatusCode}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(tmp_path_factory):
    async with open_door(tmp_path_factory.mktemp("door")) as made:
        yield made


async def by_grpc(channel, path: str, request: bytes, token: str) -> tuple[str, str]:
    """Code and reason of a call; empty if it succeeds."""
    try:
        await channel.unary_unary(path)(request, metadata=call_metadata(token) if token else ())
    except grpc.aio.AioRpcError as error:
        return error.code().name, from_rpc(error, "executor", "").reason.name
    return "", ""


async def by_json(door, path: str, request: bytes, token: str) -> tuple[str, str]:
    headers = {"content-type": "application/json"} | bearer(token)
    answer = await door.http.post(path, content=request, headers=headers)
    return ("", "") if answer.is_success else (CODES[answer.json()["code"]].name, reason_of(answer.json()))


async def by_binary(door, path: str, request: bytes, token: str) -> tuple[str, str]:
    headers = {"content-type": "application/proto"} | bearer(token)
    answer = await door.http.post(path, content=request, headers=headers)
    return ("", "") if answer.is_success else (CODES[answer.json()["code"]].name, reason_of(answer.json()))


async def by_web(door, path: str, request: bytes, token: str) -> tuple[str, str]:
    headers = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1"} | bearer(token)
    answer = await door.http.post(path, content=struct.pack(">BI", 0, len(request)) + request, headers=headers)
    assert answer.status_code == 200
    data = answer.content
    trailers = dict(answer.headers)
    while data:
        flags, length = struct.unpack(">BI", data[:5])
        if flags & 0x80:
            trailers |= dict(line.split(": ", 1) for line in data[5 : 5 + length].decode().splitlines())
        data = data[5 + length :]
    if trailers["grpc-status"] == "0":
        return "", ""
    code = next(code for code in grpc.StatusCode if code.value[0] == int(trailers["grpc-status"]))
    details = base64.b64decode(trailers["grpc-status-details-bin"] + "==")
    return code.name, next(name for name in Reason.__members__ if f"\n{chr(len(name))}{name}".encode() in details)


@pytest.mark.parametrize("caller", ["nobody", "ann", "the deployment"])
async def test_each_method_refuses_the_same_in_the_same_way_by_each_protocol(door, caller):
    token = {"nobody": "", "ann": ANN, "the deployment": SECRET}[caller]
    wrong = {}
    reasons = set()
    async with grpc.aio.insecure_channel(door.stack.addresses["executor"]) as channel:
        for path in UNARY:
            # Nothing, then a field whose text is no text.
            for request, text in ((b"", b"{}"), (b"\x0a\x01\xff", b'{"project": 7}')):
                expected = await by_grpc(channel, path, request, token)
                found = (
                    await by_json(door, path, text, token) if request == b"" else expected,
                    await by_binary(door, path, request, token),
                    await by_web(door, path, request, token),
                )
                reasons.add(expected[1])
                if set(found) != {expected}:
                    wrong[path, request] = (expected, found)
    assert wrong == {}
    assert len(UNARY) > 60
    assert {"nobody": {"UNAUTHENTICATED"}}.get(caller, reasons) == reasons
    assert caller == "nobody" or len(reasons) > 3


async def test_an_error_tells_people_and_programs_the_same(door):
    answer = await door.call("Act", {"task": {"project": "nowhere", "prompt": "x"}}, ANN)
    assert answer.status_code == 404
    (detail,) = answer.json()["details"]
    info = error_details_pb2.ErrorInfo.FromString(base64.b64decode(detail["value"] + "=="))
    assert (detail["type"], detail["debug"]["reason"]) == ("google.rpc.ErrorInfo", "PROJECT_NOT_FOUND")
    assert detail["debug"]["metadata"] == dict(info.metadata) == {"project": "nowhere"}
    assert "register its directory" in answer.json()["message"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"{", "Expecting"),
        (b"", "Expecting"),
        (b"[]", "not a JSON object"),
        (b'"x"', "not a JSON object"),
        (b'{"tsk": {}}', "tsk"),
        (b'{"task": {"run": "a"}, "task": {}}', "twice"),
        (b'{"task": {"prompt": "\xff"}}', "utf-8"),
        (rb'{"task": {"prompt": "\ud800"}}', "surrogates"),
        (b'{"task": {"mode": "MODE_FLY"}}', ""),
        (b'{"task": {"settings": {"temperature": 1e999}}}', ""),
        (b'{"task":' * 50_000, ""),
        (b"[" * 200_000, ""),
        (b'{"task": ' * 90 + b"{}" + b"}" * 90, ""),
        (b'{"task": {"images": [' + b"{}," * 20_001 + b"{}]}}", "20000 values"),
        (b'{"task": {"images": [' + b"1," * 20_001 + b"1]}}", "20000 values"),
        (b'{"task": {"images": [[' + b"1," * 20_001 + b"1]]}}", "20000 values"),
        # Counted before any of it is made, so its end does not matter.
        (b'{"task": {"images": [' + b"[]," * 20_001, "20000 values"),
        (b'{"a": "' + b'\\"' * 3 + b'", "b": [' + b'"", ' * 20_001, "20000 values"),
        ('{"task": {}}'.encode("utf-16"), "utf-8"),
        (b'{"task": {"prompt": "' + b"[{," * 20_001 + b'\\", [", "no": 1}}', '"no"'),
        (b'{"task": {"prompt": 5}}', ""),
        (b'{"task": {"prompt": {"a": 1}}}', ""),
        (b'{"task": [1]}', ""),
    ],
)
async def test_json_that_is_no_request_is_refused_by_name(door, text, word):
    headers = {"content-type": "application/json"} | bearer(ANN)
    answer = await door.http.post(f"/{EXECUTOR}/Act", content=text, headers=headers)
    assert (answer.status_code, reason_of(answer.json())) == (400, "INVALID_FIELD"), answer.text
    assert word in answer.json()["message"]
    # It is still there.
    assert (await door.call("Discover", {}, ANN)).is_success


async def test_a_number_that_no_enum_has_is_refused_as_with_grpc(door):
    task = {"project": door.stack.project, "prompt": "x", "settings": {"mode": 99}}
    answer = await door.call("Act", {"task": task}, ANN)
    assert (answer.status_code, reason_of(answer.json())) == (400, "INVALID_FIELD")


@pytest.mark.parametrize(
    ("verb", "path", "headers", "status", "word"),
    [
        ("POST", f"/{EXECUTOR}/Nothing", {}, 404, "/openapi.json"),
        ("POST", "/", {}, 404, "/openapi.json"),
        ("GET", f"/{EXECUTOR}/Act", {}, 405, "POST"),
        ("PUT", f"/{EXECUTOR}/GetStatus", {}, 405, "GET, POST"),
        ("GET", f"/{EXECUTOR}/WatchRun", {}, 405, "text/event-stream"),
        ("POST", f"/{EXECUTOR}/Act", {"content-type": "text/plain"}, 415, "application/json"),
        ("POST", f"/{EXECUTOR}/Act", {"content-type": "application/grpc"}, 415, "application/json"),
        ("POST", f"/{EXECUTOR}/WatchRun", {"content-type": "application/json"}, 415, "application/connect+json"),
        ("OPTIONS", f"/{EXECUTOR}/Act", {}, 405, "POST"),
        ("GET", f"/{EXECUTOR}/GetStatus?message=%7B%7D&encoding=json", {"host": "evil.example"}, 403, "localhost"),
        ("GET", f"/{EXECUTOR}/GetStatus", {"host": "127.0.0.1.evil.example"}, 403, "localhost"),
        ("GET", f"/{EXECUTOR}/GetStatus", {"host": "localhost@evil.example"}, 403, "localhost"),
        ("POST", f"/{EXECUTOR}/Act", {"origin": "https://evil.example"}, 403, "TURNWRIGHT_HTTP_ORIGINS"),
        ("GET", f"/{EXECUTOR}/GetStatus", {"host": "["}, 403, "localhost"),
        ("POST", f"/{EXECUTOR}/Act", {"origin": "http://["}, 403, "TURNWRIGHT_HTTP_ORIGINS"),
        ("POST", f"/{EXECUTOR}/Act", {"origin": "null"}, 403, "TURNWRIGHT_HTTP_ORIGINS"),
        ("OPTIONS", f"/{EXECUTOR}/Act", {"origin": "https://evil.example"}, 403, "TURNWRIGHT_HTTP_ORIGINS"),
    ],
)
async def test_what_is_no_call_is_refused_and_told_what_would_be_one(door, verb, path, headers, status, word):
    answer = await door.http.request(verb, path, headers=bearer(ANN) | headers)
    assert answer.status_code == status, answer.text
    assert word in answer.json()["message"] + answer.headers.get("allow", "")
    assert "access-control-allow-origin" not in answer.headers


async def test_only_methods_that_read_are_called_by_get(door):
    for path in UNARY:
        options = METHODS[path].GetOptions()
        answer = await door.http.get(path, params={"encoding": "json", "message": "{}"}, headers=bearer(ANN))
        assert (answer.status_code == 405) == (options.idempotency_level != options.NO_SIDE_EFFECTS), path
    answer = await door.http.get(f"/{EXECUTOR}/Discover?encoding=json&message=%7B%7D", headers=bearer(ANN))
    assert answer.json() == (await door.call("Discover", {}, ANN)).json()


async def test_the_document_names_each_method_that_is_served(door):
    answer = await door.http.get("/openapi.json")
    document = answer.json()
    assert (answer.status_code, document["paths"].keys()) == (200, METHODS.keys())
    gets = {path for path, operations in document["paths"].items() if "get" in operations}
    reads = {
        path for path, rpc in METHODS.items() if rpc.GetOptions().idempotency_level == rpc.GetOptions().NO_SIDE_EFFECTS
    }
    assert gets == reads - {path for path in reads if METHODS[path].client_streaming}
    referred = {text.split('"')[0] for text in answer.text.split("#/components/schemas/")[1:]}
    assert referred <= document["components"]["schemas"].keys()
    fields = document["components"]["schemas"]["turnwright.executor.v1.Task"]["properties"]
    assert fields.keys() == {
        field.json_name for field in METHODS[f"/{EXECUTOR}/Act"].input_type.fields_by_name["task"].message_type.fields
    }
    assert all(field["description"] for field in fields.values())


async def test_what_was_refused_is_kept_with_where_it_came_from(door):
    await door.call("Act", {}, "wrong")
    rows = door.stack.servers["executor"].service.refusals.rows("")
    assert {row.peer.rpartition(":")[0] for row in rows if row.method == "Act"} == {"ipv4:127.0.0.1"}


async def test_a_forwarded_address_is_not_believed(door):
    await door.call("Ask", {}, "wrong", **{"x-forwarded-for": "8.8.8.8"})
    rows = door.stack.servers["executor"].service.refusals.rows("")
    assert {row.peer.rpartition(":")[0] for row in rows if row.method == "Ask"} == {"ipv4:127.0.0.1"}


async def test_a_header_that_is_sent_twice_counts_for_nothing(door):
    sent = [
        ("authorization", f"Bearer {ANN}"),
        ("authorization", f"Bearer {SECRET}"),
        ("content-type", "application/json"),
    ]
    answer = await door.http.post(f"/{EXECUTOR}/Discover", content="{}", headers=sent)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_a_deadline_ends_a_call(door):
    request = {"project": door.stack.project}
    path = "/turnwright.runs.v1.RunService/WatchRuns"
    headers = bearer(ANN) | {"content-type": "application/connect+json", "connect-timeout-ms": "300"}
    body = json.dumps(request).encode()
    answer = await door.http.post(path, content=struct.pack(">BI", 0, len(body)) + body, headers=headers)
    assert b'"deadline_exceeded"' in answer.content
    async with asyncio.timeout(30):
        while door.stack.servers["executor"]._calls._tasks:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)


async def test_gzip_is_taken_and_given(door):
    import gzip

    headers = {"content-type": "application/json", "content-encoding": "gzip", "accept-encoding": "gzip"} | bearer(ANN)
    answer = await door.http.post(f"/{EXECUTOR}/Discover", content=gzip.compress(b"{}"), headers=headers)
    assert (answer.headers["content-encoding"], answer.json()["version"]) == (
        "gzip",
        (await door.call("Discover", {}, ANN)).json()["version"],
    )
    answer = await door.http.post(f"/{EXECUTOR}/Discover", content=b"{}", headers=headers | {"content-encoding": "br"})
    assert (answer.status_code, reason_of(answer.json())) == (400, "INVALID_FIELD")


async def test_calls_by_http_and_grpc_are_counted_together(tmp_path):
    async with open_door(tmp_path, caller_streams_max=2) as door:
        watch = GetMessageClass(METHODS[path := "/turnwright.runs.v1.RunService/WatchRuns"].input_type)
        request, bob = watch(project=door.stack.project), token_for("bob")
        async with (
            grpc.aio.insecure_channel(door.stack.addresses["executor"]) as channel,
            door.events({"project": door.stack.project}, bob, method=path) as one,
        ):
            coming = aiter(one)
            await anext(coming)
            other = channel.unary_stream(path, request_serializer=watch.SerializeToString)
            held = other(request, metadata=call_metadata(bob))
            await held.read()
            async with door.events({"project": door.stack.project}, bob, method=path) as third:
                await third.answer.aread()
                assert (third.answer.status_code, reason_of(third.answer.json())) == (429, "QUEUE_FULL")
            held.cancel()
