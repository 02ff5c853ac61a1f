"""Whether a vendor's refusal means that the prompt is longer than the model's context window.

Vendors share no code for it, so codes come first and words second; words about rates and quotas veto, because
"too many tokens" per minute passes by itself. Source: RU220; research/wire 2.4; cases wire/context_errors.
"""

from __future__ import annotations

import re
from typing import Final

from turnwright_provider.domain.error_body import TEXT_CHARS_MAX, ErrorBody

_CODES: Final = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "model_context_window_exceeded",
        "exceed_context_size_error",
        "too_many_prompt_tokens",
        "prompt_too_long",
        "input_too_long",
        "max_context_length_exceeded",
    }
)

_VETO: Final = re.compile(
    r"rate.?limit|quota|tokens? per (?:min|day|hour|sec)|requests? per|\bTPM\b|\bRPM\b|\bTPD\b|too many requests"
    r"|throttl|billing|string too long",
    re.IGNORECASE,
)

_SUBJECT: Final = r"(?:prompt|input|inputs|request|messages?|conversation|chat history|context|query)"
_WORDS: Final = re.compile(
    r"max(?:imum)? context (?:length|size|window)|context (?:length|window|size|limit) (?:of|is) "
    r"|(?:context|token) (?:length|window|size|limit|count)[^.\n]{0,60}(?:exceed|overflow|reached|too (?:long|small))"
    r"|exceed(?:s|ed|ing)?[^.\n]{0,80}(?:context|token limit|number of (?:input )?tokens|input tokens|input limit)"
    r"|input tokens? (?:count )?[^.\n]{0,40}exceed|tokens? exceed(?:s|ed)? "
    rf"|{_SUBJECT}(?: length| size| text| tokens)?(?: is| are| was| has become)? too (?:long|large|big)"
    rf"|length of (?:all |the |your )?{_SUBJECT} (?:is )?too long"
    r"|too many (?:input |prompt |total )?tokens|token limit reached|context overflow|out of context"
    rf"|reduce the length of (?:the |your )?{_SUBJECT}"
    r"|max_new_tokens`? must be|must have less than \d{1,9} tokens|more than max tokens allowed"
    r"|max(?:imum)? (?:prompt|input|sequence) length (?:is|of)|larger than the (?:model's )?(?:maximum )?context"
    r"|(?:prompt|input) (?:length|tokens?)(?: [\d(),]{1,12})? (?:exceed|is (?:greater|more|larger) than)"
    r"|context_length_exceeded|context ?window ?exceeded",
    re.IGNORECASE,
)

_STATUSES: Final = frozenset({0, 200, 400, 413, 422, 500})
"""Where words are believed; 0 is an error without a status. A 500 is what older llama.cpp answers."""


def is_context_exceeded(status: int, error: ErrorBody) -> bool:
    """Whether the request was too long for the model."""
    if {error.code.lower(), error.type.lower()} & _CODES:
        return True
    text = error.message[:TEXT_CHARS_MAX]
    return status in _STATUSES and not _VETO.search(text) and bool(_WORDS.search(text))
