"""`init`: finds a model server on this host and writes it into turnwright.toml, so that the next command works."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.text import Text
from turnwright.types.v1 import grant_pb2

from turnwright_cli.exit_codes import FAILED, FailureError, usage
from turnwright_cli.invocation import Invocation, config_file
from turnwright_cli.output import answer, console, put
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_session
from turnwright_kit.identity.policy import EVERYBODY

SERVERS: Final = {
    "llama.cpp": "http://127.0.0.1:8080/v1",
    "Ollama": "http://127.0.0.1:11434/v1",
    "LM Studio": "http://127.0.0.1:1234/v1",
    "vLLM": "http://127.0.0.1:8000/v1",
    "LiteLLM": "http://127.0.0.1:4000/v1",
}
"""Where servers of these names listen unless they are told otherwise."""

ANSWER_S_MAX: Final = 2.0
"""Seconds that a server has to list its models."""

LIST_BYTES_MAX: Final = 1024 * 1024


async def init(call: Invocation, *, url: str | None, force: bool, clients: bool | None) -> int:
    if clients is not None:
        return await _open_to_clients(call, clients=clients)
    file = config_file()
    if file.exists() and not force:
        raise usage(f"{file} exists already. Edit it, or replace it with --force.")
    for name, at in {"The server": url}.items() if url else SERVERS.items():
        models = await _models_at(str(at))
        if models:
            _write(file, str(at), models[0])
            out = console()
            where = f"{at}" if url else f"{at} (where {name} listens by default)"
            put(out, Text(f"The server at {where} has {', '.join(map(safe_line, models))}."))
            put(out, Text(f"Wrote {file}: {safe_line(models[0])} is called `local`. Try: turnwright -m local"))
            return 0
    where = url or ", ".join(f"{name} ({at})" for name, at in SERVERS.items())
    raise FailureError(
        FAILED,
        f"No model server answers. Asked: {where}.\nStart one, name another one with --url URL, or set the key of a "
        "vendor (docs/vendors.md), such as OPENAI_API_KEY.",
    )


async def _open_to_clients(call: Invocation, *, clients: bool) -> int:
    async with open_session(call.settings) as session:
        project = await session.client.init_project(call.root)
        if clients:
            await session.client.set_grant(project.name, EVERYBODY, grant_pb2.GRANT_ROLE_MEMBER)
        else:
            await session.client.delete_grant(project.name, EVERYBODY)
    may = "everybody with an identity is a member" if clients else "only those with a grant of their own may use it"
    return answer(call, [project], f"{safe_line(project.name)}: {may}")


async def _models_at(url: str) -> list[str]:
    """Names of the models of a server; none if it does not answer in time, or with something else."""
    import httpx

    try:
        async with httpx.AsyncClient(timeout=ANSWER_S_MAX, trust_env=False) as client:
            answer = await client.get(f"{url.rstrip('/')}/models")
        listed: Any = json.loads(answer.content[:LIST_BYTES_MAX]) if answer.status_code == httpx.codes.OK else {}
        return [str(one["id"]) for one in listed.get("data") or [] if one.get("id")]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, AttributeError, TypeError, KeyError):
        return []


def _write(file: Path, url: str, model: str) -> None:
    """A file that only its owner may read, because people put keys into it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines: Sequence[str] = (
        "# Settings of turnwright; docs/settings.md lists them all. Variables of the environment win over this file.",
        f"openai_base_url = {_quoted(url)}",
        "",
        "[models]",
        f"local = {_quoted(f'openai/{model}')}",
    )
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _quoted(text: str) -> str:
    # JSON escapes are those of TOML, except for what is no character.
    return json.dumps(re.sub(r"[\ud800-\udfff]", "", text), ensure_ascii=False)
