"""What users of similar products reported: replies, streams, edits and errors with their right values, shared cases alone.

The kinds of these cases are proven by the tests of the modules; here each input is played once, as a second opinion.
"""

import json

import pytest
from turnwright_values.provider import Finish

from cases import load_shared
from turnwright_core.chat.message import Role, text_message
from turnwright_core.chat.reply import PartialReply
from turnwright_grammar.edits.apply import EditConflict, apply_edit
from turnwright_grammar.reader.parser import read_reply
from turnwright_provider.domain.classify import classify
from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.token_estimate import estimate_tokens
from unit.provider.damaged_replies import WIRES

APIS = {
    "chat-stream": "openai.chat",
    "responses-stream": "openai.responses",
    "responses": "openai.responses",
    "anthropic-stream": "anthropic.messages",
    "anthropic": "anthropic.messages",
}
LISTED = load_shared("strangers/replies_and_edits.jsonl")
# How a reader's steps grow is counted by the generator of texts in the tests of the grammar.
CASES = [pytest.param(case, id=case["id"]) for case in LISTED if case["layer"] != "linear"]


def played(api, events):
    """The message of these events, and why it ended."""
    fold, reply, finish = WIRES[api].fold(), PartialReply(), None
    for event in [*(event for one in events for event in fold.take(one)), *fold.close()]:
        if isinstance(event, Finish):
            finish = event.reason
        else:
            reply.add(event)
    return reply, finish


def commands_of(given):
    text, is_cut = (given["text"], given["is_cut"]) if isinstance(given, dict) else (given, False)
    found = [one for one in read_reply(text, is_cut=is_cut).commands if one.name != "think"]
    return [[one.name, one.attributes.get("path") or one.attributes.get("command")] for one in found]


@pytest.mark.parametrize("case", CASES)
def test_what_others_reported_comes_out_right(case):
    given, right, layer = case["input"], case["right"], case["layer"]
    match layer:
        case "chat-stream" | "responses-stream" | "anthropic-stream":
            if layer == "chat-stream":
                given = [{"choices": [{"index": 0, "delta": delta}]} for delta in given]
                given.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
            reply, finish = played(APIS[layer], given)
            told = {"text": reply.text, "calls": [[one.name, one.arguments] for one in reply.calls], "finish": finish}
            assert {name: told[name] for name in right} == right
        case "sent-back":
            api = APIS[given["wire"]]
            message = played(api, given["reply"])[0].message("v/m")
            asked = [text_message(Role.USER, "One."), message, text_message(Role.USER, "Two.")]
            request = WIRES[api].request(ModelCall("m", tuple(asked), vendor_model="v/m"), frozenset())
            assert right["absent"] not in json.dumps(json.loads(request.body))
        case "reader":
            assert commands_of(given) == right["commands"]
        case "edit":
            result = apply_edit(given["original"], given["body"])
            assert not isinstance(result, EditConflict), result
            assert result.text in (right if isinstance(right, list) else [right])
        case "vendor-error":
            status, body, *headers = given
            failure = classify(status, headers[0] if headers else {}, json.dumps(body).encode(), 0)
            assert failure.kind.value == right["class"]
            assert failure.retry_after_s == right.get("wait_s")
        case "estimate":
            text = given if isinstance(given, str) else given["text"]
            assert abs(estimate_tokens(text) / right["o200k"] - 1) <= right["within"]
        case _:
            raise AssertionError(layer)
