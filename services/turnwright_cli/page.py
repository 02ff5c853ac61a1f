"""`ui`, and `serve --ui`: the address of the page, with a token that ends in a day."""

from __future__ import annotations

import asyncio
import getpass
import html
import sys
import time
import webbrowser
from pathlib import Path
from typing import Final

from turnwright.tokens.v1 import token_service_pb2
from turnwright.types.v1 import grant_pb2

from turnwright_cli.discovery import locate, read_record
from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.session import open_session
from turnwright_core.private_files import replacing_atomically
from turnwright_kit.identity.own_tokens import DAY_S

DAYS: Final = 1
"""How long the token of the page lasts."""
READ_S: Final = 10.0
"""How long a browser that was started may take to read the file with the address, in seconds."""


async def show_page(call: Invocation, *, principal: str, url: str) -> int:
    """Print the address, and open it if a person is there to see it. Raises FailureError."""
    settings = call.settings
    if not await locate(settings.home, settings.server, tls=settings.tls):
        raise usage(
            "Nothing serves the page: run `turnwright serve --ui`, or name a deployment with --server and --url."
        )
    record = read_record(settings.home)
    where = url or ("" if settings.server or record is None else record.http)
    if not where:
        raise usage("HTTP is not served there, or it is not known where: name its address with --url http://HOST:PORT.")
    if settings.server and not principal:
        raise usage(
            "Say who looks at the page of a deployment: --principal NAME, with the rights that they have there."
        )
    name = principal or f"page-{_login()}"
    wanted = token_service_pb2.CreateTokenRequest(principal=name, kind="person", audience="executor", days=DAYS)
    async with open_session(settings) as session:
        bearer = await session.client.create_token(wanted)
        projects = [project.name async for project in session.client.list_projects()]
        until_ms = round((time.time() + DAYS * DAY_S) * 1000)
        if not principal:
            # The page of the operator of this home shows what the operator may see, and as long as its token lasts. The
            # name is the page's own: others may have the login's, by a token or a certificate.
            for project in projects:
                subjects = [grant.subject async for grant in session.client.list_grants(project)]
                if (subject := f"user:{name}") not in subjects:
                    await session.client.set_grant(project, subject, grant_pb2.GRANT_ROLE_OWNER, until_ms=until_ms)
    address = f"{where.rstrip('/')}/#token={bearer}"
    print(address)
    if sys.stdout.isatty():
        await open_once(settings.home, address, READ_S)
    return 0


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise usage("This user has no name: say who looks at the page with --principal NAME.") from None


async def open_once(home: Path, address: str, read_s: float) -> None:
    """Open it by a file that only its owner can read: everybody on the host can read the arguments of a browser."""
    file = home / "run" / "page.html"
    try:
        with replacing_atomically(file) as scratch:
            scratch.write_text(f'<meta http-equiv="refresh" content="0;url={html.escape(address)}">')
        if webbrowser.open(file.as_uri()):
            await asyncio.sleep(read_s)
    finally:
        # It has the token.
        file.unlink(missing_ok=True)
