"""Accepting a proposal with edited content: validation, and the resulting effect.

Source: rows RU232, RU253; architecture 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace
from turnwright_values.types import CommandEffect, FileEdit, FileEffect, QuestionEffect

from turnwright_core.checks import invalid
from turnwright_core.patterns.patch import unified_patch
from turnwright_executor.domain.effects import CallEffect, Effect

ONLY: Final = ""
"""Path that stands for the only thing that a proposal would write."""

AMENDED_PATCH_BYTES_MAX: Final = 16 * 1024
"""Longest diff between proposed and accepted content that the model is shown, in bytes."""


def check_contents(effect: Effect, contents: Mapping[str, str]) -> None:
    """Raises InvalidError for contents that do not fit the effect."""
    if isinstance(effect, QuestionEffect) and contents:
        raise invalid("contents", "A question has no content: give an answer.")
    if isinstance(effect, CallEffect) and contents:
        raise invalid("contents", "This proposal has no content to change: accept it as it is, or reject it.")
    if isinstance(effect, CommandEffect):
        _check_command(contents)
    if isinstance(effect, FileEffect):
        _check_files(effect, contents)


def _check_command(contents: Mapping[str, str]) -> None:
    if set(contents) - {ONLY}:
        raise invalid("contents", "The content of a command is its command line: leave the path empty.")
    if ONLY in contents and not contents[ONLY].strip():
        raise invalid("contents", "The command line is empty: reject the proposal instead.")
    if "\0" in contents.get(ONLY, ""):
        raise invalid("contents", "A command line cannot contain NUL.")


def _check_files(effect: FileEffect, contents: Mapping[str, str]) -> None:
    written = [edit.path for edit in effect.edits if edit.content is not None]
    if ONLY in contents and (len(written) != 1 or len(contents) != 1):
        raise invalid("contents", f"The proposal writes {len(written)} files: name the path of each content.")
    for path in contents:
        if path != ONLY and path not in written:
            raise invalid(
                "contents", f"The proposal does not write {path}; it writes {', '.join(written) or 'no file'}."
            )


def edited_text(effect: FileEffect, path: str, contents: Mapping[str, str]) -> str | None:
    """The replacement for a file of the effect; None if there is none."""
    written = [edit.path for edit in effect.edits if edit.content is not None]
    return contents.get(path, contents.get(ONLY) if written == [path] else None)


def amended_edit(edit: FileEdit, text: str | None, patch_bytes_max: int = AMENDED_PATCH_BYTES_MAX) -> FileEdit:
    """The edit with replaced content; its patch then shows the difference to the proposed content.

    A patch that is too long is left out.
    """
    if text == edit.content:
        return edit
    patch = unified_patch(edit.path, edit.content or "", text or "")
    is_short = len(patch.encode(errors="replace")) <= patch_bytes_max
    return replace(edit, content=text, patch=patch if is_short else "", amended=True)


def amended_command(effect: CommandEffect, contents: Mapping[str, str]) -> CommandEffect:
    return replace(effect, command=contents.get(ONLY, effect.command))
