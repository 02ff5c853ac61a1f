"""What a vendor refuses of a conversation, found out by asking again without it.

One such block would otherwise be sent with every later request, and end the run for good.

    refused_silence    only if the vendor says so: replies without reasoning are sent with an empty one
    refused_blocks     reasoning, signatures and other blocks that only a vendor can read
    refused_images     images before the last text of a user; another text says that they were there

Each is tried in addition to those before it, and told with the attempt (Retry.refused) and with the reply that it led
to; callers send it along with the rest of the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace
from turnwright_values.provider import Dropped

from turnwright_core.chat.message import Image, Message, Role, Text
from turnwright_core.model_calls import REFUSED_BLOCKS, REFUSED_IMAGES, REFUSED_SILENCE
from turnwright_provider.domain.classify import denies_model
from turnwright_provider.domain.failures import Failure, FailureClass
from turnwright_provider.domain.model_call import ModelCall

IMAGE_LEFT_OUT: Final = "[There was an image here, which cannot be shown any more.]"

SILENT: Final = "reasoning_content"
"""The field that vendors name if they want reasoning with every reply."""

_REASONS: Final = {
    REFUSED_SILENCE: "The vendor wants reasoning with every reply, and earlier ones have none.",
    REFUSED_BLOCKS: "The vendor has refused the reasoning and other opaque blocks of earlier replies.",
    REFUSED_IMAGES: "The vendor has refused the earlier images.",
}

_STATUSES: Final = frozenset({400, 404, 413, 415, 422})


def next_refused(call: ModelCall, failure: Failure) -> str:
    """What to leave out next, because of which the vendor may have refused a call; empty: nothing is left."""
    words = failure.detail.lower()
    if failure.kind is not FailureClass.INVALID or failure.status not in _STATUSES:
        return ""
    if denies_model(failure.detail) and "image" not in words:
        return ""
    return next((name for name in _candidates(call, words) if name not in call.refused), "")


def _candidates(call: ModelCall, words: str) -> Iterator[str]:
    replies = [message for message in call.messages if message.role is Role.ASSISTANT]
    if SILENT in words and replies:
        yield REFUSED_SILENCE
    if any(_is_opaque(message) for message in replies):
        yield REFUSED_BLOCKS
    if _without_images(call.messages) != list(call.messages):
        yield REFUSED_IMAGES


def without_refused(call: ModelCall) -> Sequence[Message]:
    """The messages of a call as they are sent, without what its vendor has refused."""
    messages: Sequence[Message] = call.messages
    if REFUSED_BLOCKS in call.refused:
        messages = [_without_blocks(message) if _is_opaque(message) else message for message in messages]
    if REFUSED_IMAGES in call.refused:
        messages = _without_images(messages)
    return messages


def refused_parts(call: ModelCall) -> tuple[Dropped, ...]:
    return tuple(Dropped(name, reason) for name, reason in _REASONS.items() if name in call.refused)


def _is_opaque(message: Message) -> bool:
    signed = any(call.signature for call in message.calls)
    return bool(message.reasoning or message.thinking or message.server_blocks or message.citations or signed)


def _without_blocks(message: Message) -> Message:
    calls = tuple(replace(call, signature="") for call in message.calls)
    return replace(message, reasoning="", thinking=(), server_blocks=(), citations=(), calls=calls)


def _without_images(messages: Sequence[Message]) -> list[Message]:
    """The messages without images before the last text of a user, which is what is asked now."""
    texts = [
        (place, number)
        for place, message in enumerate(messages)
        for number, part in enumerate(message.parts)
        if message.role is Role.USER and isinstance(part, Text) and part.text.strip()
    ]
    last = max(texts, default=(0, 0))
    sent: list[Message] = []
    for place, message in enumerate(messages):
        parts = tuple(
            Text(IMAGE_LEFT_OUT) if isinstance(part, Image) and (place, number) < last else part
            for number, part in enumerate(message.parts)
        )
        sent.append(message if parts == message.parts else replace(message, parts=parts))
    return sent
