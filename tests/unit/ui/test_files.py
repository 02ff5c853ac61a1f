"""The files of the page, and the page with a run in it: what a browser is told, and what it has to load."""

import gzip
import html
import json
import re

from turnwright_ui import files, source_hash
from turnwright_ui.recording import page_with

BYTES_MAX = 300 * 1024
"""The limit of what the page loads, unpacked. It comes packed, which is a third."""
HOSTILE = "</script><script>alert(1)</script><!--\u2028"


def test_the_page_loads_little_and_nothing_of_others():
    found = files()
    assert sorted(found) == ["/", "/page.css", "/page.js"]
    assert sum(len(file.body) for file in found.values()) < BYTES_MAX
    assert sum(len(file.packed) for file in found.values()) < BYTES_MAX / 3
    for file in found.values():
        assert gzip.decompress(file.packed) == file.body
    page = found["/"].body.decode()
    assert re.findall(r"<script[^>]*>", page) == ['<script type="module" src="page.js">']
    assert not re.search(r"style=|<style| on\w+=|//", page)


def test_browsers_are_told_to_run_nothing_else():
    for path, file in files().items():
        headers = {name.decode(): value.decode() for name, value in file.headers}
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'", path
        assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
        assert policy["trusted-types"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"


def test_a_page_of_a_run_holds_its_script_and_its_data_and_allows_nothing_more():
    page = page_with(HOSTILE, "r", {"WatchRun": {HOSTILE: [b"\x00<"]}})
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)
    assert [attributes for attributes, _ in scripts] == [' type="application/json" id="recording"', ' type="module"']
    data = json.loads(scripts[0][1])
    assert data == {"project": HOSTILE, "run": "r", "answers": {"WatchRun": {HOSTILE: ["ADw="]}}}
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert found
    policy = html.unescape(found[1])
    assert f"script-src {source_hash(scripts[1][1])};" in policy
    assert "connect-src 'none'" in policy
    assert page.index("Content-Security-Policy") < page.index("<style") < page.index("<script")
