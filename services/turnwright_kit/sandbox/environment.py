"""The environment of child processes; ours contains keys and tokens. Source: architecture 11."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_PASSED_ON: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "NODE_PATH", "JAVA_HOME"),
        *("GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
    }
)


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a command: an allowlist of harmless names, so that no key or token leaks."""
    kept = {key: value for key, value in environment.items() if key in _PASSED_ON or key.startswith("LC_")}
    return (
        {"PATH": os.defpath} | kept | {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
    )
