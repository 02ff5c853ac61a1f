"""`serve --ui` and `ui`: an address of the page whose token opens what the person at this home may see, for a day."""

from __future__ import annotations

import getpass
import re

import httpx
import jwt

from e2e.cli_process import PORTS, Bench

ADDRESS = r"^(http://127\.0\.0\.1:\d+)/#token=(\S+)$"
WAIT_S = 60


def projects_of(url, token):
    answer = httpx.post(
        f"{url}/turnwright.projects.v1.ProjectService/ListProjects",
        json={}, headers={"authorization": f"Bearer {token}"}, timeout=WAIT_S, trust_env=False,
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    return [project["name"] for project in answer.json().get("projects", ())]


def test_the_page_opens_with_a_token_that_ends_in_a_day(tmp_path) -> None:
    bench = Bench(tmp_path)
    refused = bench.run("ui")
    assert refused.returncode != 0
    assert "turnwright serve --ui" in refused.stderr
    with bench.running("serve", *PORTS, "--listen", "http=127.0.0.1:0", "--ui") as served:
        url, token = served.wait_for(ADDRESS, "out").groups()
        page = httpx.get(url, timeout=WAIT_S, trust_env=False)
        assert page.status_code == 200
        assert page.headers["content-encoding"] == "gzip"
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        for name in re.findall(r'(?:src|href)="(page[^"]*)"', page.text):
            assert httpx.get(f"{url}/{name}", timeout=WAIT_S, trust_env=False).status_code == 200
        claims = jwt.decode(token, options={"verify_signature": False})
        assert claims["exp"] - claims["iat"] == 24 * 3600
        # Others may have the name of the login, by a certificate or a token.
        assert claims["sub"] == f"page-{getpass.getuser()}"
        assert projects_of(url, token) == []

        assert bench.run("project").returncode == 0
        printed = bench.run("ui")
        assert printed.returncode == 0, printed.stderr
        again = re.search(ADDRESS, printed.stdout, re.MULTILINE)
        assert again
        assert again[2] != token
        assert projects_of(url, again[2]) == [bench.project.name]

        stranger = bench.run("ui", "--principal", "somebody", "--url", "https://agents.example.com/")
        found = re.search(r"^https://agents\.example\.com/#token=(\S+)$", stranger.stdout, re.MULTILINE)
        assert found, stranger.stderr
        assert jwt.decode(found[1], options={"verify_signature": False})["sub"] == "somebody"
        assert projects_of(url, found[1]) == []

        server = served.wait_for(r"^executor serves at (\S+)$", "err")[1]
        unnamed = bench.run("ui", "--server", server, "--url", url)
        assert unnamed.returncode == 2
        assert "--principal" in unnamed.stderr
        assert unnamed.stdout == ""
