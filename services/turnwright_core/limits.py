"""All limits of the contract, with their units. Tunable ones are settings instead.

Source: architecture 3, 10; rows RU049, RU130, RU203, RU223; RP02.
"""

from typing import Final

PATH_CHARS_MAX: Final = 2048
"""Longest path of an entry, in code points (RU049)."""

TARGET_CHARS_MAX: Final = 512
"""Maximum length of a command's target; a longer one is reasoning that leaked into an attribute (RU130)."""

SUMMARY_CHARS_MAX: Final = 80
"""Longest `summary` attribute of an entry, in code points (RU203)."""

PROMPT_BYTES_MAX: Final = 1024 * 1024
"""Longest prompt, in bytes of UTF-8."""

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest body of an entry, in bytes of UTF-8."""

ATTRIBUTES_BYTES_MAX: Final = 1024 * 1024
"""Longest attributes of an entry, in bytes of JSON text."""

RECORD_BYTES_MAX: Final = 1024 * 1024
"""Longest record of a command, in bytes of protobuf."""

COMMENT_BYTES_MAX: Final = 64 * 1024
"""Longest comment of a decision, in bytes of UTF-8."""

PERSONA_BYTES_MAX: Final = 64 * 1024
"""Longest persona, in bytes of UTF-8."""

PATTERN_CHARS_MAX: Final = 2048
"""Longest pattern, in code points."""

NAME_CHARS_MAX: Final = 128
"""Longest alias, project name, owner and request id, in characters."""

WRITES_MAX: Final = 10_000
"""Most entry writes in one request."""

PAGE_SIZE_DEFAULT: Final = 100
"""Items of a page if the request does not set it."""

SPAN_S_MAX: Final = 315_576_000_000
"""The longest duration that a message holds."""
PAGE_SIZE_MAX: Final = 1000
"""Most items of a page."""

MESSAGE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Longest gRPC message that a service accepts, in bytes. Everything large is streamed in parts far below."""

STOCK_MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""gRPC's default limit for received messages, in bytes."""

PAGE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Size at which a page, or a part of a body, ends, in bytes; with its envelope it stays below the clients' limit."""

CHUNK_BYTES: Final = 256 * 1024
"""Size at which a streamed answer is split into messages, in bytes (architecture 12.4)."""

EVENT_BODY_BYTES_MAX: Final = 16 * 1024
"""Bodies in events are truncated after this many bytes; GetEntry returns the rest."""

WHOLE_IN_EVENTS: Final = ("prompt", "assistant", "reasoning", "draft")
"""Schemes whose bodies are whole in events: long ones come in pieces (C50)."""

NOTICE_BYTES_MAX: Final = 4096
"""Longest text of a notice, in bytes of UTF-8."""

PATCH_BYTES_MAX: Final = 256 * 1024
"""Longest diff in a proposal, in bytes."""

OLD_TEXTS_BYTES_MAX: Final = 1024 * 1024
"""Texts of files before the changes of a proposal, in bytes together."""

TITLE_TOKENS_MAX: Final = 1024
"""Most tokens of output for the title of a run, thoughts included: some models think although they are not asked to."""

CONTEXT_LENGTH_DEFAULT: Final = 32_768
"""Assumed context window of a model that does not state one, in tokens (architecture 15)."""

PLAN_BODY_BYTES_MAX: Final = 96 * 1024
"""Longest body of a plan, in bytes of UTF-8 (RP02)."""

PLAN_DELTA_BYTES_MAX: Final = 16 * 1024
"""Longest delta of a plan, in bytes of UTF-8 (RP02)."""

PLAN_DELTAS_MAX: Final = 100
"""Most deltas of one version of a plan (RP08)."""

PLAN_DELTAS_BYTES_MAX: Final = 256 * 1024
"""Total size of the deltas of one version of a plan, in bytes of UTF-8 (RP08)."""

PLANS_MAX: Final = 100
"""Most plans of a run."""

PLANS_BYTES_MAX: Final = 1024 * 1024
"""Total size of the plans of a run with their deltas, in bytes of UTF-8."""

PLAN_ITEMS_MAX: Final = 500
"""Most items of a plan."""

PLAN_ITEM_CHARS_MAX: Final = 4096
"""Longest content of an item of a plan, in code points."""

PLAN_EVIDENCE_MAX: Final = 16
"""Maximum number of evidence paths of one item."""

EVENT_PAYLOAD_BYTES_MAX: Final = 64 * 1024
"""Longest payload of an event, in bytes of JSON text (RH01)."""

EVENT_SOURCE_CHARS_MAX: Final = 128
"""Maximum length of the source of an event, in code points (RH01)."""

CALL_ID_CHARS_MAX: Final = 16 * 1024
"""Longest id of a native call that is kept of a vendor's, in code points; a longer one is shortened.

Proxies put signatures into ids, which they want back.
"""

CALL_NAME_CHARS_MAX: Final = 128
"""Longest name of a called tool that is kept of a reply, in code points; the rest is cut off."""

VENDOR_MODEL_CHARS_MAX: Final = 256
"""Longest name of a model that is kept of a reply, in code points; the rest is cut off."""

FINISH_REASON_CHARS_MAX: Final = 64
"""Longest finish reason that is kept of a reply, in code points; the rest is cut off."""

REPLY_CALLS_MAX: Final = 128
"""Maximum number of native calls of one reply: OpenAI refuses to be sent a message that has more."""

SCHEMES_MAX: Final = 1000
"""Maximum number of schemes of a store; one answer lists all of them."""

FILE_CONSTRAINTS_MAX: Final = 10_000
"""Maximum number of file constraints in one project."""

FILE_PATTERNS_MAX: Final = 100
"""Maximum number of globs and regexes among them: each is matched against every path; an exact path is looked up."""

SEARCH_QUERY_CHARS_MAX: Final = 2048
"""Longest query of a search, in code points."""

SEARCH_SCHEMES_MAX: Final = 100
"""Maximum number of schemes to restrict a search to."""

SEARCH_HITS_DEFAULT: Final = 10
"""Hits of a search if the request does not set it."""

SEARCH_HITS_MAX: Final = 100
"""Most hits of a search."""

SNIPPET_CHARS_MAX: Final = 400
"""Maximum length of a search snippet, in code points."""

VIEW_CHANGES_MAX: Final = 64
"""Maximum number of view changes in one request for a packet."""

CALIBRATION_MAX: Final = 100.0
"""A vendor that counts more tokens than this for each estimated one is not counting the same text."""

REASON_BYTES_MAX: Final = 64 * 1024
"""Longest reason of a loop's end, in bytes of UTF-8."""

LOOP_SUMMARY_BYTES_MAX: Final = 64 * 1024
"""Maximum length of a loop's summary in bytes of UTF-8; the reply itself is stored whole.

A message with a run and a loop, and a prompt for each, stays below the clients' limit.
"""

REPLY_RESERVE_TOKENS: Final = 1024
"""Tokens that a budget reserves for the reply of a model call, in addition to its packet."""

TEMPERATURE_DEFAULT: Final = 0.1
"""Sampling temperature of a run that does not set one (RU303)."""

SHOWN_BYTES_MIN: Final = 256
"""Shortest body in bytes that a packet piece may refer to; for shorter ones the reference costs what it saves."""

SHOWN_BYTES_MAX: Final = 32 * 1024
"""Longest such body: the store reads it whenever it reads the piece."""

IMAGES_MAX: Final = 8
"""Most images that a loop shows its model, with those of its edits."""

IMAGE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Longest image that a run keeps, in bytes; as base64 it fits into a body."""

IMAGES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Most bytes that the images of a loop have together: they go to the provider in one message."""

EXPLAINED_PIECES_MAX: Final = 5000
"""Most pieces of a packet in one explanation."""

EXPLAINED_PIECES_DEFAULT: Final = 1000
"""Pieces of a packet in an explanation for which the request gives no number."""

IMAGE_URL_CHARS_MAX: Final = 8192
"""Longest URL of an image, in characters."""

PROMPT_EDITS_MAX: Final = 64
"""Most edits of one prompt, those of plugins included."""

PROMPT_EDITS_BYTES_MAX: Final = 64 * 1024
"""Most bytes of UTF-8 that the texts, ids and URLs of these edits have together: each turn keeps its edits."""
