"""Serves each file of a folder as a streamed answer: `POST /NAME/whatever` gets FOLDER/NAME.json. Prints its port.

A file holds `{"type": content type, "chunks": [text, ...]}`; each chunk is one of the transfer encoding.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import cache
from pathlib import Path


@cache
def answer(name: str) -> bytes:
    """Head and body, as sent."""
    canned = json.loads(Path(sys.argv[1], f"{name}.json").read_text())
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {canned['type']}\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = (chunk.encode() for chunk in canned["chunks"])
    return head.encode() + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests until the client goes."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
            await reader.readexactly(int(fields.get(b"content-length", b"0")))
            writer.write(answer(head.split(b"/", 2)[1].decode()))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
