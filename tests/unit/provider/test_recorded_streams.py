"""Every recorded chat completions stream, folded: the message is what the vendor meant."""

import pytest

from turnwright_provider.domain.failures import FailureClass, VendorError
from unit.provider.recorded import (
    chat_fold,
    chunks_of,
    expected,
    folded,
    recorded,
    tags_of,
)

STREAMS = {i: c for i, c in recorded().items() if "stream" in c["tags"]}
BROKEN = {
    "groq/pydantic_ai_test_groq_test_tool_use_failed_error_streaming_0": FailureClass.INVALID,
    "groq/pydantic_ai_test_groq_test_tool_use_failed_error_streaming_with_text_0": FailureClass.INVALID,
    "openrouter/pydantic_ai_test_openrouter_test_openrouter_stream_error_0": FailureClass.CONTEXT_EXCEEDED,
    "real_aimock/chat_disconnect": FailureClass.SERVER,
}
"""Streams with an error in them, or cut: what they fail as."""

WHOLE = {i: c for i, c in STREAMS.items() if i not in BROKEN}


@pytest.mark.parametrize("case_id", WHOLE)
def test_a_recorded_stream_folds_to_its_message(case_id):
    case = WHOLE[case_id]
    assert folded(chunks_of(case), chat_fold(tags_of(case))) == expected(case)


@pytest.mark.parametrize("case_id", [each for each in BROKEN if each in STREAMS])
def test_a_broken_stream_fails_as_its_class(case_id):
    with pytest.raises(VendorError) as broken:
        folded(chunks_of(STREAMS[case_id]))
    assert broken.value.failure.kind is BROKEN[case_id]
