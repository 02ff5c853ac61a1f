"""Makes pages of the texts that lie beside docs/, and lets links to files of the repository lead there.

A link to a page leads to the page; one to anything else that is in the repository, to the repository. One to nothing is
left as it is, and fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = {
    name: f"{name.removesuffix('.md').lower()}.md"
    for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
} | {"README.md": "index.md"}
FILE: Final = re.compile(r"^```(\w+) ([\w./-]+)$", re.MULTILINE)
"""The begin of a block that is a file, with its name."""
LINK: Final = re.compile(r"(?P<before>\]\()(?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?(?=\))")


def on_files(files: Files, config: Any) -> Files:
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=_as_page((ROOT / name).read_text(), PurePosixPath(), config)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    if page.file.generated_by:
        return markdown
    return _as_page(markdown, PurePosixPath("docs", page.file.src_uri).parent, config)


def _as_page(markdown: str, folder: PurePosixPath, config: Any) -> str:
    """A text of a folder of the repository, as the page of it has it."""
    # Pages of other texts lie where docs/ lies.
    depth = max(0, len(folder.parts) - 1)

    def link(found: re.Match[str]) -> str:
        path = _normal(folder / found["path"])
        if path in PAGES:
            at = "../" * depth + PAGES[path]
        elif path.startswith("docs/") and path.endswith((".md", ".png")):
            at = "../" * depth + path.removeprefix("docs/")
        elif (ROOT / path).exists() and not path.startswith("docs/"):
            at = f"{config['repo_url']}/blob/main/{path}"
        else:
            return found[0]
        return found["before"] + at + (found["anchor"] or "")

    return LINK.sub(link, FILE.sub(r'```\1 title="\2"', markdown))


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
