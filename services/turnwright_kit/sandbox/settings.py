"""Settings of what confines commands, alike in every service that starts some."""

from __future__ import annotations

from typing import Any, Final, Literal

from turnwright_kit.settings import setting

SandboxChoice = Literal["auto", "bubblewrap", "landlock", "limits"]

SH_SANDBOX: Final[Any] = setting(
    "How commands are confined: `bubblewrap` or `landlock` (the service refuses to start if it does not work), "
    "`limits` (resource limits only: commands can read and change what the service can), or `auto` (bubblewrap, "
    "else Landlock, else no command runs).",
    "auto",
)
SH_WRITABLE: Final[Any] = setting(
    "Directories outside the project that sandboxed commands may write to, separated by colons.",
    "~/.cache:~/.npm:~/.cargo/registry:~/.cargo/git:~/go/pkg:~/.m2/repository:~/.gradle/caches:~/.gradle/wrapper",
)
SH_READABLE: Final[Any] = setting(
    "Extra files and directories that sandboxed commands may read, such as `~/.gitconfig`, separated "
    "by colons. The project, system files, toolchains and caches are readable anyway.",
    "",
)
