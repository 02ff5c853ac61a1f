"""Every limit that is part of the contract, in one place, with its unit. Tunable ones are settings instead.

Source: architecture 3, 10; rows RU049, RU130, RU203, RU223; RP02.
"""

from typing import Final

PATH_CHARS_MAX: Final = 2048
"""Longest path of an entry, in code points (RU049)."""

TARGET_CHARS_MAX: Final = 512
"""Longest target of a command; a longer one is reasoning that bled into an attribute (RU130)."""

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
"""Items of a page when the request does not say."""

PAGE_SIZE_MAX: Final = 1000
"""Most items of a page."""

MESSAGE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Longest gRPC message that a service accepts, in bytes. Everything large is streamed in parts far below."""

STOCK_MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Longest message that clients of gRPC take by default, in bytes."""

PAGE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Size at which a page, or a part of a body, ends, in bytes: with all around it, it stays below what clients take."""

CHUNK_BYTES: Final = 256 * 1024
"""Size at which a streamed answer is cut into the next message, in bytes (architecture 12.4)."""

EVENT_BODY_BYTES_MAX: Final = 16 * 1024
"""Bodies in events are cut after so many bytes; GetEntry has the rest."""

NOTICE_BYTES_MAX: Final = 4096
"""Longest text of a notice, in bytes of UTF-8."""

PATCH_BYTES_MAX: Final = 256 * 1024
"""Longest diff in a proposal, in bytes."""

CONTEXT_LENGTH_DEFAULT: Final = 32_768
"""Context window in tokens that is assumed for a model that has none stated (architecture 15)."""

PLAN_BODY_BYTES_MAX: Final = 96 * 1024
"""Longest body of a plan, in bytes of UTF-8 (RP02)."""

PLAN_DELTA_BYTES_MAX: Final = 16 * 1024
"""Longest delta of a plan, in bytes of UTF-8 (RP02)."""

PLAN_DELTAS_MAX: Final = 100
"""Most deltas of one version of a plan (RP08)."""

PLAN_DELTAS_BYTES_MAX: Final = 256 * 1024
"""Most bytes of UTF-8 that the deltas of one version of a plan have together (RP08)."""

PLANS_MAX: Final = 100
"""Most plans of a run."""

PLANS_BYTES_MAX: Final = 1024 * 1024
"""Most bytes of UTF-8 that the plans of a run have together, with their deltas."""

PLAN_ITEMS_MAX: Final = 500
"""Most items of a plan."""

PLAN_ITEM_CHARS_MAX: Final = 4096
"""Longest content of an item of a plan, in code points."""

PLAN_EVIDENCE_MAX: Final = 16
"""Most paths that prove the status of one item."""

EVENT_PAYLOAD_BYTES_MAX: Final = 64 * 1024
"""Longest payload of an event, in bytes of JSON text (RH01)."""

EVENT_SOURCE_CHARS_MAX: Final = 128
"""Longest name of who tells of an event, in code points (RH01)."""

SCHEMES_MAX: Final = 1000
"""Most schemes of a store; all of them are listed in one answer."""

FILE_CONSTRAINTS_MAX: Final = 10_000
"""Most constraints on files in one project."""

FILE_PATTERNS_MAX: Final = 100
"""Most of them that are globs or regexes: each one is held against every path, an exact path is looked up."""

SEARCH_QUERY_CHARS_MAX: Final = 2048
"""Longest query of a search, in code points."""

SEARCH_SCHEMES_MAX: Final = 100
"""Most schemes that a search can be narrowed to."""

SEARCH_HITS_DEFAULT: Final = 10
"""Hits of a search when the request does not say."""

SEARCH_HITS_MAX: Final = 100
"""Most hits of a search."""

SNIPPET_CHARS_MAX: Final = 400
"""Longest piece of a text that a search shows, in code points."""

VIEW_CHANGES_MAX: Final = 64
"""Changes of a view that one request for a packet brings."""

CALIBRATION_MAX: Final = 100.0
"""A vendor that counts more tokens than this for one estimated is not counting the same text."""

REASON_BYTES_MAX: Final = 64 * 1024
"""Longest reason of a loop's end, in bytes of UTF-8."""

LOOP_SUMMARY_BYTES_MAX: Final = 64 * 1024
"""Longest summary that a loop ends with, in bytes of UTF-8; the reply itself is kept whole. A message that shows a run
and a loop, with a prompt each, stays below what clients take by default."""

REPLY_RESERVE_TOKENS: Final = 1024
"""Tokens that a budget sets aside for the reply of a model call, beside those of its packet."""

TEMPERATURE_DEFAULT: Final = 0.1
"""Sampling temperature of a run that names none (RU303)."""

SHOWN_BYTES_MIN: Final = 256
"""Shortest body, in bytes, of which a piece of a packet says that it shows it; below, its name costs what it saves."""

SHOWN_BYTES_MAX: Final = 32 * 1024
"""Longest such body: the store reads it whenever it reads the piece."""

IMAGES_MAX: Final = 8
"""Most images that a loop shows its model."""

IMAGE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Longest image that a run keeps, in bytes; as base64 it fits into a body."""

IMAGES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Most bytes that the images of a loop have together: they go to the provider in one message."""
