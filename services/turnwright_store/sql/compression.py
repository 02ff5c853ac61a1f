"""Compression of stored values: by zstd, against a fixed dictionary, which packets extend by the texts that they show.

Most values are short and similar: attributes, requests and results of turns, notes, records. Alone they compress badly;
with a dictionary they shrink to a fifth to a half. Compressed values begin with a byte that begins neither a text in
UTF-8 nor a record (a protobuf message whose first field is a text), so stored values are self-describing.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import zstandard

from turnwright_store.ports import POSTGRESQL, SQLITE

COMPRESSED_FROM_BYTES: Final = 32
"""Length from which a value is compressed: shorter ones hardly get shorter, even against the dictionary."""

_COMPRESSED: Final = b"\xff"
"""What a compressed value begins with; zstd's own magic number is left out."""

_LEVEL: Final = 3
"""Level 1 takes as long, and leaves 4 % more of prose."""

DICTIONARY: Final = b"""\
{"subkind":"mode_switch","source":"client","payload":{"loop":1,"from":"ask","to":"act"}}
{"event":{"subkind":"tool_decision","source":"runtime","payload":{"path":"log://turn_1/sh/","tool":"sh",\
"decision":"accepted","principal":"operator","comment":""}}}
{"kind":"markdown","version":1,"mode":"act"}{"version":1,"sequence":1}{"bytes":1024,"binary":true,"mime":"image/png"}
{"mode": "act", "model": "", "no_repo": false, "no_interaction": false, "no_web": false, "no_proposals": false, \
"yolo": true, "budget": null, "reasoning": null, "response_format": null, "images": [], "assembly": 1, "edits": [], \
"project_instructions": null}
{"tool":"search","target":"","summary":"","status":404}{"command":"","channel":1,"summary":"","producer":""}
{"finish":"error","reasoning":"","thinking_blocks":[{"type":"thinking","thinking":"","signature":""}],\
"tool_calls":[{"id":"call_1","type":"function","function":{"name":"","arguments":"{\\"path\\":\\""}}]}
system +0:1;user +1:
{"tokens":1000,"cursor":["",1,1,0],"calibration":0.5,"render_version":"0.1.0","token_source":4,"ceiling":100000,\
"effects_chars":0}
{"model":"m","vendor_model":"openai/gpt-5","context_length":128000,"temperature":0.1,"tools":["get","env","skill",\
"think","search","set_plan","update_plan","get_plan","set","cp","mv","rm","sh","update","ask_user"],\
"reasoning":null,"calls":1,"mode":2,"persona":null,"response_format":null,"kind":1,"assembly":1,"output_reserve":0}
{"finish":"tool_calls","usage":{"prompt_tokens":10000,"completion_tokens":100,"total_tokens":10100,\
"cached_tokens":9000,"reasoning_tokens":0,"cost_usd":0.01},"status":200,"strikes":1,"fingerprint":"",\
"packet_tokens":10000,"cursor":{"incarnation":"","run_revision":10,"project_revision":1,"global_revision":0},\
"first_delta_ms":100,"model_ms":1000,"lost_cost_usd":0.0,"work_ms":10,"vendor_model":"gpt-5","kind":1,\
"calibration":0.5,"token_source":4}
{"call":{"finish":"stop","is_cut":false,"usage":{"prompt_tokens":10000,"completion_tokens":100,"total_tokens":10100},\
"packet_digest":"","packet_tokens":10000,"calibration":0.5,"token_source":4,"render_version":"0.1.0",\
"cursor":{"incarnation":"","run_revision":10,"project_revision":1,"global_revision":0},"first_delta_ms":100,\
"vendor_model":"gpt-5","model":"openai/gpt-5","dropped":[],"model_ms":1000,"fingerprint":"","losses":0,"commands":3,\
"lost_tokens":0,"lost_cost_usd":0.0,"compression":0,"room_chars":100000},"finish":"stop"}
<get path="src/"/>
<update status="102"></update>
</sh>
<sh path="sh://turn_1/" target="" status="200" outcome="" summary="" tokens="0">
<<:::sh://turn_1/
<prompt tokenUsage="1000" tokensFree="1000" path="prompt://1" mode="act">
<<:::prompt://1
:::prompt://1
</prompt>
<known path="known:// status="200" tokens="100"/>
</known>
<file path="src/" status="200" tokens="512">
[the first 500 of [the last 500 of [outline of 1024 characters] lines]
</file>
<unknown path="unknown://
<set path="log://turn_1/set/" target="src/" status="404" tokens="0">
<<:::log://turn_1/set/
:::log://turn_1/set/
</set>
<update path="log://turn_1/update/3" status="200" tokens="0">
<<:::log://turn_1/update/3
:::log://turn_1/update/3
</update>
<get path="log://turn_1/get/src/" target="" status="200" tokens="0">
<<:::log://turn_1/get/src/
: 16 lines, 512 tokens
:::log://turn_1/get/
</get>
<budget tokenUsage="1000" tokensFree="1000">
| scheme | visible | tokens | % |
|---|---|---|---|
| unknown | 1 | 0% |
| skill | https | known | sh | env | file | 1 | 10 | 0% |
| log | 1 | 1000 | 0% |
| prompt | 1 | 0 | 0% |

Summarized: 0 entries, 0 tokens (0% of budget).
System: 1000 tokens (0% of budget).
Total: 1 visible + 0 summarized entries; tokenUsage 1000 / ceiling 1000. 1000 tokens free.
</budget>
\n\x03set\x12\x1a\n\x18\n\x04path\x12\x10src/\x18\x00 \x03(\x01r\x00\
\n\x06update\x12\x18\n\r\n\x06status\x12\x03102\x12\x07\x18\x02 \x01r\x00\
\n\x03get\x12\x12\n\x10\n\x04path\x12\x08src/\x18\x00 \x01r\x00
{"tool":"update","target":"","status":102}{"tool":"get","target":\""""
"""The dictionary: common content of values, the more frequent the nearer to the end.

Never change this: stored data depends on it.
"""


def _parameters(dictionary: bytes, *, is_checked: bool) -> zstandard.ZstdCompressionParameters:
    return zstandard.ZstdCompressionParameters.from_level(
        _LEVEL,
        dict_size=len(dictionary),
        format=zstandard.FORMAT_ZSTD1_MAGICLESS,
        write_checksum=is_checked,
        write_dict_id=False,
    )


def _compressor(texts: bytes, *, is_checked: bool) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(
        dict_data=zstandard.ZstdCompressionDict(texts, dict_type=zstandard.DICT_TYPE_RAWCONTENT),
        compression_params=_parameters(texts, is_checked=is_checked),
    )


def _decompressor(texts: bytes) -> zstandard.ZstdDecompressor:
    dictionary = zstandard.ZstdCompressionDict(texts, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdDecompressor(dict_data=dictionary, format=zstandard.FORMAT_ZSTD1_MAGICLESS)


class _Codecs(threading.local):
    """zstandard contexts are not thread-safe."""

    def __init__(self) -> None:
        self.compressor = _compressor(DICTIONARY, is_checked=False)
        self.decompressor = _decompressor(DICTIONARY)


_codecs: Final = _Codecs()


def compress(data: bytes) -> bytes:
    """The stored form of a text in UTF-8, or of a record."""
    if len(data) < COMPRESSED_FROM_BYTES:
        return data
    shorter = _COMPRESSED + _codecs.compressor.compress(data)
    return shorter if len(shorter) < len(data) else data


def decompress(stored: bytes) -> bytes:
    return _codecs.decompressor.decompress(stored[1:]) if stored.startswith(_COMPRESSED) else stored


def _stored_text(text: str) -> str | bytes:
    if len(text) < COMPRESSED_FROM_BYTES:
        return text
    data = text.encode()
    stored = compress(data)
    return text if stored is data else stored


def _text_of(stored: Any) -> str:
    return stored if isinstance(stored, str) else decompress(bytes(stored)).decode()


DIGEST_BYTES: Final = hashlib.sha256().digest_size


def _digest_of(stored: Any) -> str:
    data = stored.encode() if isinstance(stored, str) else bytes(stored)
    return (data if len(data) == DIGEST_BYTES else hashlib.sha256(data).digest()).hex()


READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "Boolean": bool,
    "CompressedText": _text_of,
    "Digest": lambda stored: bytes(stored).hex(),
    "DigestOrText": _digest_of,
    "LargeBinary": bytes,
    "Serialized": lambda stored: decompress(bytes(stored)),
}
"""How a stored value that is not NULL is read, by the name of its type; those of other types are as they are stored."""

_WRITERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "CompressedText": _stored_text,
    "Digest": bytes.fromhex,
    "Serialized": lambda record: compress(record) or None,
}
WRITERS: Final[Mapping[str, Mapping[str, Callable[[Any], Any]]]] = {
    SQLITE: _WRITERS,
    POSTGRESQL: {**_WRITERS, "CompressedText": lambda text: compress(text.encode())},
}
"""How a value that is not NULL is stored, by the database and the name of its type."""


def compress_against(data: bytes, shown: bytes) -> bytes:
    """Compress bytes with the bytes that they repeat as the dictionary; `decompress_against` needs the same."""
    # With a checksum: with other bytes shown, something else would be read, and nobody would notice.
    return _compressor(shown + DICTIONARY, is_checked=True).compress(data)


def decompress_against(stored: bytes, shown: bytes) -> bytes:
    """Raises ZstdError if `shown` is not what the bytes were compressed against."""
    return _decompressor(shown + DICTIONARY).decompress(stored)
