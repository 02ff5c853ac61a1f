"""How the page is opened: by a file that has its token, for no longer than a browser needs to read it."""

from __future__ import annotations

import sys

import pytest

from turnwright_cli.page import open_once

pytestmark = pytest.mark.asyncio

BROWSER = """#!{python}
import pathlib, sys, urllib.parse, urllib.request
file = pathlib.Path(urllib.request.url2pathname(urllib.parse.urlsplit(sys.argv[1]).path))
pathlib.Path({seen!r}).write_text(oct(file.stat().st_mode & 0o777) + file.read_text())
"""


async def test_the_file_with_the_token_is_gone_when_the_browser_has_read_it(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(BROWSER.format(python=sys.executable, seen=str(seen)))
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setattr("webbrowser._tryorder", None)
    await open_once(tmp_path, "http://127.0.0.1:7444/#token=abc", 0.0)
    assert seen.read_text() == ('0o600<meta http-equiv="refresh" content="0;url=http://127.0.0.1:7444/#token=abc">')
    assert list((tmp_path / "run").iterdir()) == []
