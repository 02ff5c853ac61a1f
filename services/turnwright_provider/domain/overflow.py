"""Recognizes errors that mean that the prompt is longer than the model's context window.

There is no common code for it, so vendors' codes are tried first and their messages second, sentence by sentence: one
must contain something that is sent (a prompt, its tokens, the context window) and a comparison with a limit. Sentences
about the output limit, rate limits, money, images, files or a single field do not count.
Source: RU220; research/wire 2.4; cases wire/context_errors.
"""

from __future__ import annotations

import re
from typing import Final

from turnwright_provider.domain.error_body import TEXT_CHARS_MAX, ErrorBody

_CODE: Final = re.compile(
    r"(?:model)?(?:max(?:imum)?)?(?:context|prompt|input)(?:window|length|size|tokens?|limit)*"
    r"(?:exceeded|toolong|toolarge|overflow)(?:error)?"
    r"|exceedcontextsize(?:error)?|toomany(?:prompt|input)tokens"
    r"|1261"  # Zhipu's number for it
)
"""Codes and types, in lower case without separators."""

_SEPARATORS: Final = re.compile(r"[\s_.-]+")

_VETO: Final = re.compile(
    r"rate.?limit|quota|\b(?:tokens?|requests?|characters) (?:per|a) (?:min|day|hour|sec|month)"
    r"|\bper[- ](?:min|hour|day|sec|month)|\b(?:daily|hourly|weekly|monthly)\b|requests? per|too many requests"
    r"|\b[TR]P[MDSH]\b|throttl|billing|\bcredits?\b|\bafford|balance|usage limit|concurren|subscription|\byour plan\b"
    r"|string too long|access token|bearer|\bJWT\b|速率|频率|每分钟|配额|余额|并发"
    r"|\bwait before|\bplease wait|\btry(?:ing)? again (?:later|in \d)|\bslow down\b",
    re.IGNORECASE,
)

_SENTENCE: Final = re.compile(r"(?<=[.!?;。])\s+|(?<=。)|\n")

_OUTPUT: Final = re.compile(
    r"max_?(?:completion_?|new_?|output_?)?tokens|maximum tokens (?:you requested|value)|num_predict|budget_tokens"
    r"|(?:completion|output|response|reply|generated) (?:tokens?|length)|(?:completion|output|response) is too",
    re.IGNORECASE,
)
"""The limit of the reply, which has another cure."""

_SENT: Final = re.compile(
    r"\b(?:prompts?|inputs?|messages|conversation|chat|history|context|query|sequence|question|text)\b", re.IGNORECASE
)
"""Words for the input."""

_REQUESTED: Final = re.compile(r"\brequest(?:ed|s)?\b", re.IGNORECASE)

_LENGTH: Final = re.compile(
    r"\bcontext[ _-]?(?:length|window|size|limit|len|capacity)\b|\btoken window\b|\b(?:n_ctx|input_ids)\b"
    r"|\bmax_(?:model|seq|context|input|total)_\w+"
    r"|\b(?:prompt|input|sequence|conversation)s?[ _](?:token )?(?:length|size|limit)\b"
    r"|\blength of (?:input|prompt|messages)\b|\bmessages? token length\b",
    re.IGNORECASE,
)
"""Words for its length and limit."""

_TOKENS: Final = re.compile(r"\btokens\b|\btoken (?:count|limit|length)|\d tokens?\b", re.IGNORECASE)

_OVER: Final = re.compile(
    r"exceed|overflow|surpass|\b(?:long|larg|great|bigg|high)er than|\bmore than|\babove\b|\bbeyond\b|\bover the\b"
    r"|\btoo (?:long|large|many|big|small|short)\b|\bup to\b|\bat most\b|\b(?:less|fewer) than|\bmax(?:imum)?\b|\bmax_"
    r"|\blimit|\ballowed|\bfull\b|\breached|\bfit\b|\bonly\b|\bout of\b|\bshould be\b|\breduce\b|[<>]|≤",
    re.IGNORECASE,
)
"""A comparison with a limit."""

_NUMBER: Final = re.compile(r"\d{3}")

_COUNT: Final = re.compile(r"\b\d{2,9}\b")
_COUNTED: Final = re.compile(
    r"context (?:length|window|size)\D{1,20}(?P<length>\d{2,9}).{1,80}\b(?:input|prompt|messages?)\b", re.IGNORECASE
)
"""A sentence with the length of the window and of the input."""

_FIGURE: Final = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3}){1,3}\b(?!\.\d)|(?<![\d.,])\d{2,9}\b(?!\.\d)")
_LIMIT: Final = re.compile(
    r"(?:context (?:length|window|size)|\bmax\w*|\blimit|allowed|at most|up to|>)"
    rf".{{0,60}}?(?P<after>{_FIGURE.pattern})"
    rf"|(?P<before>{_FIGURE.pattern})[- ]tokens? (?:context|limit|max)",
    re.IGNORECASE | re.DOTALL,
)
"""The length of the window in a refusal."""

_PLAIN: Final = re.compile(
    r"\b(?:prompts?|inputs?|request|messages?|conversation|chat|history|context|query)"
    r"(?: content| length| size| text| tokens?| sequence)*"
    r"(?: is| are| was| has become)? (?:too (?:long|large|big)\b|(?:long|larg)er than\b)"
    r"|\blength of (?:all |the |your )?(?:\w+ ){0,3}(?:is )?too long|\breduce (?:the )?(?:length|size) of\b"
    r"|\breduce (?:the |your )?(?:prompt|input|messages?|context)\b"
    r"|\btoo many (?:\w+ )?tokens\b|\btoken limit (?:reached|exceeded)"
    r"|\b(?:prompts?|inputs?|messages|conversation|chat|history)\b[^.]{0,40} exceed\w*[^.]{0,40}\b(?:length|size|limit)"
    r"|\brequest\b[^.]{0,40} exceed\w*[^.]{0,40}\b(?:length|size)\b"
    r"|\bmax(?:imum)? tokens of \d+ exceeded|\bcontext overflow"
    r"|\bout of context\b"
    r"|\b(?:prompts?|inputs?|request|messages?|conversation|chat|history)\b[^.]{0,40} fit [^.]{0,20}\bcontext\b"
    r"|\bmore than max tokens allowed|\bmust have less than \d+ tokens|\bmaxLength: ?\d+, actual"
    r"|context ?window ?exceeded|context_length_exceeded|\bmodel token limit|number of tokens allowed",
    re.IGNORECASE,
)
"""What says it without more."""

_CHINESE: Final = re.compile(
    r"(?:输入|上下文|长度|内容|消息|对话|prompt|tokens?)[^。]{0,20}(?:超过|超出|超长|过长|上限)"
    r"|(?:超过|超出)[^。]{0,20}(?:长度|上下文|tokens?)",
    re.IGNORECASE,
)

_ANOTHER: Final = re.compile(
    r"\b(?:images?|pictures?|audio|videos?|files?|pdfs?|attachments?|tools?|functions?)\b", re.IGNORECASE
)

_STATUSES: Final = frozenset({0, 200, 400, 413, 422, 500})
"""Where words are believed; 0 is an error without a status. A 500 is what older llama.cpp answers."""


_FIELD: Final = re.compile(
    r"\b(?:field|parameter|propert(?:y|ie)|attribute|column|title|description|name|id|identifier|key|label|tag|metadata|ur[il]"
    r"|header|schema|enum|filename|username|user|email|address|stop[ _]sequence|[a-z]{1,40}_(?:id|key|name|url))s?\b",
    re.IGNORECASE,
)
"""What is sent beside the prompt, and has a length of its own."""


def is_context_exceeded(status: int, error: ErrorBody) -> bool:
    if any(_CODE.fullmatch(_SEPARATORS.sub("", code.lower())) for code in error.codes):
        return True
    text = error.message[:TEXT_CHARS_MAX]
    if status not in _STATUSES or _VETO.search(text):
        return False
    sentences = [sentence for sentence in _SENTENCE.split(text) if sentence.strip()]
    if not sentences or (_is_of_the_reply(sentences[0]) and not _leaves_no_room(sentences)):
        return False
    return any(_is_overflow_sentence(sentence) for sentence in sentences)


def _is_of_the_reply(sentence: str) -> bool:
    return bool(_OUTPUT.search(sentence)) and not _SENT.search(sentence)


def _leaves_no_room(sentences: list[str]) -> bool:
    """Whether the reply's limit is too large only together with the input, and not for the whole window."""
    asked = _COUNT.findall(sentences[0])
    window = next((found for sentence in sentences[1:] if (found := _COUNTED.search(sentence))), None)
    return bool(asked) and window is not None and int(asked[-1]) < int(window["length"])


def _is_overflow_sentence(sentence: str) -> bool:
    if _is_of_the_reply(sentence) or (
        _FIELD.search(sentence) and not (_LENGTH.search(sentence) or _TOKENS.search(sentence))
    ):
        return False
    is_compared = bool(_OVER.search(sentence))
    if _LENGTH.search(sentence) and (is_compared or _NUMBER.search(sentence)):
        return True
    if is_compared and _TOKENS.search(sentence) and (_SENT.search(sentence) or _REQUESTED.search(sentence)):
        return True
    return bool(_PLAIN.search(sentence) or _CHINESE.search(sentence)) and not _ANOTHER.search(sentence)


def reported_token_counts(message: str) -> tuple[int, int]:
    """The length of the window and of the prompt, in tokens, that a refusal tells; 0 for what it does not."""
    text = message[:TEXT_CHARS_MAX]
    limit = _LIMIT.search(text)
    window = _number(limit["after"] or limit["before"]) if limit else 0
    longest = max(map(_number, _FIGURE.findall(text)), default=0)
    return window, longest if longest > window else 0


def _number(figure: str) -> int:
    return int(figure.replace(",", ""))
