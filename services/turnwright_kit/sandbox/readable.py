"""What a command in a sandbox can read of the host: system files, toolchains and caches, but no homes or databases.

This is an allowlist, because what a command needs is known, and where a host keeps its secrets is not. Programs are
those on PATH, each with its installation, wherever its links lead. Of the user's home only language installations are
visible, without files of credentials; of a work tree around the project everything, because git and builds look there.
A setting adds more.

Commands can create links in their projects and in shared caches, which may contain a part of these paths: the targets
of such links are not made visible.
Source: architecture 6, 11.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

MARKER_FOLDER: Final = ".turnwright"
"""The folder of the runtime in a project."""

SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu/store", "/sys/devices/system"),
    *("/var/lib/ca-certificates", "/var/lib/gems"),
)
"""System directories of distributions."""

ETC: Final = (
    *("alternatives", "ld.so.*", "nsswitch.conf", "host.conf", "hosts", "hostname", "resolv.conf", "gai.conf"),
    *("protocols", "services", "networks", "passwd", "group", "localtime", "timezone", "mtab", "shells", "login.defs"),
    *("ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ca-certificates*", "crypto-policies", "pki/ca-trust"),
    *("pki/java", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf", "gitconfig", "gitattributes"),
    *("*-release", "debian_version", "issue", "locale*", "default/locale", "terminfo", "inputrc", "profile*"),
    *("bash*", "fonts", "magic*", "mime.types", "mailcap", "xml", "sgml", "java*", "maven", "gradle", "python*"),
    *("perl", "php*", "ruby*", "R", "lua*", "texmf", "emacs", "vim", "man_db.conf", "manpath.config", "dpkg"),
)
"""Names and patterns below /etc with configuration of libraries and languages. No keys, no account secrets."""

LANGUAGES: Final = (
    *("bin", ".local/bin", ".local/lib", ".local/pipx", *(f".local/share/{name}" for name in (
        "pipx", "uv", "mise", "rtx", "fnm", "pnpm", "hatch", "virtualenvs",
    ))),
    *(".pyenv", ".rye", ".virtualenvs", "miniconda3", "anaconda3", "miniforge3", "mambaforge"),
    *(".nvm", ".fnm", ".volta", ".asdf", ".nodenv", ".bun", ".deno", ".npm-global"),
    *(".rustup", ".cargo/bin", ".cargo/env", "go/bin", "go/pkg", "sdk", ".sdkman", ".jdks", ".jenv"),
    *(".rbenv", ".rvm", ".gem/ruby", ".phpenv", ".dotnet", ".nuget/packages", ".ghcup", ".cabal/bin"),
    *(".cabal/packages", ".stack/programs", ".opam", ".elan", ".julia", ".swiftly", ".luarocks", ".linuxbrew"),
)  # fmt: skip
"""Where languages and their managers install below a home. `.cargo`, `.gem` and the like also contain credentials."""

_INSTALLED: Final = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "JAVA_HOME", "GOROOT", "RUSTUP_HOME")
_INSTALLED_IN_PARTS: Final = (("CARGO_HOME", ("bin", "registry", "git")), ("GOPATH", ("bin", "pkg")))
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_PROGRAMS: Final = ("bin", "sbin", "shims")
_MIXED: Final = frozenset({".local", ".cargo", ".gem", ".config", ".npm", ".m2", ".gradle", ".cabal", ".stack", "go"})
"""Folders of a home that contain installations as well as credentials and other things."""

LINKS_MAX: Final = 16
"""Links that are followed from a program to its installation."""

LINE_BYTES_MAX: Final = 8192
"""Bytes that are read of a file in which git names a path."""


def readable(environment: Mapping[str, str], more: Iterable[str], writable: Sequence[str] = ()) -> tuple[str, ...]:
    """Existing paths that commands with this environment may read, in addition to their project. Blocks: checks many.

    `writable` are folders that commands can write, in addition to their projects.
    """
    found = dict.fromkeys(path for path in (*SYSTEM, *_etc()) if os.path.lexists(path))
    home = Path(environment.get("HOME", "/"))
    wanted = [home / path for path in LANGUAGES] if not is_wide(home / "bin") else []
    wanted += [Path(environment[name]) for name in (*_INSTALLED, *_CERTIFICATES) if environment.get(name)]
    wanted += [
        Path(environment[name]) / part for name, parts in _INSTALLED_IN_PARTS if environment.get(name) for part in parts
    ]
    wanted += [Path(sys.base_prefix), *_programs(environment.get("PATH", ""), found, writable)]
    for path in wanted:
        if path.is_absolute() and os.path.exists(path) and not is_wide(path):
            places = {path} if is_replaceable(path, writable) else {path, path.resolve()}
            found |= dict.fromkeys(str(place) for place in places if not is_wide(place))
    return (*found, *more)


def is_replaceable(path: Path, writable: Iterable[str]) -> bool:
    """Whether commands could replace a path with a link: it is in a project, or in a shared writable folder."""
    for place in {path, Path(os.path.realpath(path))}:
        if any(place.is_relative_to(folder) for folder in writable):
            return True
        if any(os.path.lexists(folder / MARKER_FOLDER) for folder in (place, *place.parents)):
            return True
    return False


def _etc() -> Iterator[str]:
    for pattern in ETC:
        yield from sorted(map(str, Path("/etc").glob(pattern)))


def is_wide(path: Path) -> bool:
    """Whether a path contains somebody's home, or most of a disk: too much to expose."""
    if len(path.parts) <= 2:
        return True
    return any(home.is_relative_to(path) for home in _homes()) or path.resolve() in _homes()


def _homes() -> frozenset[Path]:
    homes = {Path(user.pw_dir) for user in pwd.getpwall()} | {Path.home()}
    return frozenset(home for home in homes if len(home.parts) > 1)


def _programs(search_path: str, shown: Iterable[str], writable: Sequence[str]) -> Iterator[Path]:
    roots = [Path(path) for path in shown]
    for folder in map(Path, filter(None, search_path.split(os.pathsep))):
        if not folder.is_absolute() or _is_in(folder, roots) or not os.path.isdir(folder):
            continue
        yield _installation(folder)
        with suppress(OSError):
            for program in folder.iterdir():
                yield from (_installation(hop.parent) for hop in _hops(program, writable) if not _is_in(hop, roots))


def _hops(link: Path, writable: Sequence[str]) -> Iterator[Path]:
    """The targets of a program's links, one after the other."""
    for _ in range(LINKS_MAX):
        if not link.is_symlink() or is_replaceable(link.parent, writable):
            return
        link = Path(os.path.normpath(link.parent / link.readlink()))
        yield link


def _installation(folder: Path) -> Path:
    """The installation that a folder with programs belongs to; the folder itself if it also contains other things."""
    whole = folder.parent
    is_alone = folder.name not in _PROGRAMS or whole.name in _MIXED or is_wide(whole)
    return folder if is_alone else whole


def _is_in(path: Path, roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def git_paths_outside(root: str) -> tuple[str, ...]:
    """Parts of git outside a project: the work tree around it, or what a linked work tree shares.

    A project may contain an untrusted `.git` that names any folder: it counts only if that folder names the work tree,
    too.
    """
    for folder in (Path(root), *Path(root).parents):
        entry = folder / ".git"
        if is_wide(folder) or not os.path.lexists(entry):
            continue
        if entry.is_symlink() or entry.lstat().st_uid not in (os.geteuid(), Path(root).stat().st_uid):
            return ()
        shared = _shared(entry) if entry.is_file() else ()
        return (*shared, *((str(folder),) if folder != Path(root) else ()))
    return ()


def _shared(entry: Path) -> tuple[str, ...]:
    """The repository of a linked work tree, if it knows this one.

    Its folder for the work tree is inside it: an untrusted project could name any other folder as its repository.
    """
    with suppress(OSError, ValueError):
        own = Path(os.path.realpath(entry.parent / _line(entry).removeprefix("gitdir:").strip()))
        if own.parent.name == "worktrees" and os.path.realpath(_line(own / "gitdir")) == os.path.realpath(entry):
            return (str(own.parent.parent),)
    return ()


def _line(path: Path) -> str:
    """The content of a small file, stripped."""
    return read_beginning(path, LINE_BYTES_MAX).decode().strip()


def read_beginning(path: str | Path, bytes_max: int) -> bytes:
    """The first bytes of a file outside a tree; none of anything else. Raises OSError, ValueError.

    An untrusted project may have pipes and endless files in its place.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, bytes_max) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)
