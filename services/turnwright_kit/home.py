"""The home directory: database, token, sockets, log. Everything in it is private to the user (0700, 0600).

Source: architecture 15.
"""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path
from typing import Final

from turnwright_core.private_files import read_private

SOCKET_PATH_BYTES_MAX: Final = 100
"""Linux limits socket paths to 108 bytes; with a longer home path, services listen on loopback instead."""


def default_home() -> Path:
    """`$XDG_DATA_HOME/turnwright`, else `~/.local/share/turnwright`."""
    data_home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data_home).expanduser() / "turnwright"


def ensure_home(home: Path) -> Path:
    """The directory, created as private if it did not exist. Raises OSError if it cannot be created or written."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise OSError(
            f"The directory {home} cannot be created or written: {error.strerror}. Choose another one with "
            "TURNWRIGHT_HOME (everything) or TURNWRIGHT_DB (the database)."
        ) from None
    return home


def read_or_make_token(home: Path) -> str:
    """The deployment's secret: created by the first process (0600), read by all others."""
    file = ensure_home(home) / "token"
    try:
        return _read(file)
    except FileNotFoundError:
        pass
    fresh = secrets.token_urlsafe(32)
    scratch = file.with_name(f"token.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(fresh + "\n")
    try:
        # Linking fails if the file exists: of two first processes one wins, and both read the same token.
        os.link(scratch, file)
    except FileExistsError:
        pass
    finally:
        scratch.unlink()
    return _read(file)


def _read(file: Path) -> str:
    token = read_private(file).decode().strip()
    if not token:
        raise ValueError(f"{file} is empty: delete it, and the next start makes a new one")
    return token


def socket_address(home: Path, name: str) -> str:
    """The address of a service in a home's stack: a unix socket, or a free loopback port if its path is too long."""
    path = home / "run" / f"{name}.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        return "127.0.0.1:0"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"unix:{path}"
