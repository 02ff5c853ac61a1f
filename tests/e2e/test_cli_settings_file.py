"""`turnwright.toml` and `init`, in real processes, with a real server to find."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from e2e.cli_process import Bench
from turnwright_cli.exit_codes import EXIT_OF_LOOP
from turnwright_core.runs import ABORTED


class Models(BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.path == "/v1/models"
        body = json.dumps({"data": [{"id": 'odd "name"'}, {"id": "second"}]} if found else {}).encode()
        self.send_response(200 if found else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_told):
        """Nothing: tests are quiet."""


@pytest.fixture
def url():
    server = HTTPServer(("127.0.0.1", 0), Models)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture
def bench(tmp_path) -> Bench:
    made = Bench(tmp_path)
    made.environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    return made


@pytest.fixture
def file(bench):
    found = bench.root / "config" / "turnwright" / "turnwright.toml"
    found.parent.mkdir(parents=True)
    return found


def test_init_writes_the_server_that_answers_and_never_over_a_file(bench, url) -> None:
    done = bench.run("init", "--url", url)
    assert done.returncode == 0, done.stderr
    file = bench.root / "config" / "turnwright" / "turnwright.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    listed = bench.run("models", "--json")
    assert [json.loads(line)["vendor_model"] for line in listed.stdout.splitlines()] == ['openai/odd "name"']
    again = bench.run("init", "--url", url)
    assert again.returncode == 2
    assert "--force" in again.stderr


def test_init_says_what_to_do_where_nothing_answers(bench) -> None:
    done = bench.run("init", "--url", "http://127.0.0.1:9/v1")
    assert done.returncode == 5
    assert "--url" in done.stderr


def test_the_file_counts_and_variables_win(bench, file) -> None:
    file.write_text('[models]\nlocal = "openai/one"\nother = "openai/two"\n[context]\nlocal = 4096\n')
    bench.environment["TURNWRIGHT_MODEL_other"] = "openai/three"
    listed = [json.loads(line) for line in bench.run("models", "--json").stdout.splitlines()]
    assert {(one["alias"], one["vendor_model"]) for one in listed} == {
        ("local", "openai/one"),
        ("other", "openai/three"),
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("think = ", "is not TOML"),
        ("[modles]\na = 'b/c'", "there is no table [modles]"),
        ("think = [1]", "think must be a text"),
        ("think = 'perhaps'", "turnwright.toml: think must be true or false (it is 'perhaps')"),
        (
            "openai_base_ulr = 'x'",
            "turnwright.toml: there is no setting openai_base_ulr (did you mean openai_base_url?)",
        ),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(bench, file, text, told) -> None:
    file.write_text(text)
    done = bench.run("models")
    assert done.returncode == 2
    assert told in done.stderr


def test_a_secret_that_others_may_read_is_refused(bench, file) -> None:
    file.write_text("openai_api_key = 'x'\n")
    file.chmod(0o644)
    done = bench.run("models")
    assert done.returncode == 2
    assert "chmod 600" in done.stderr


def test_a_projects_file_says_what_tasks_get_and_options_win(bench, file) -> None:
    file.write_text('[task]\nmodel = "persons"\nmax_turns = 1\n')
    (bench.project / "turnwright.toml").write_text('[task]\nmodel = "projects"\n')
    for name in ("persons", "projects", "named"):
        bench.script(
            name, f'{name}<update status="102">Go on.</update>', f'{name} again<update status="200">Done.</update>'
        )
    first = bench.run("act", "Work.", "--run", "r")
    assert "projects" in first.stdout
    assert first.returncode == EXIT_OF_LOOP[ABORTED], "a limit of one turn"
    assert "named" in bench.run("act", "Work.", "--model", "named").stdout
    (bench.project / "turnwright.toml").write_text('[task]\nmodel = "named"\n')
    assert "projects again" in bench.run("act", "Work.", "--run", "r", "--max-turns", "0").stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sh_sandbox = 'none'", "no sh_sandbox"),
        ("[models]\nlocal = 'openai/x'", "no models"),
        ("[task]\nmodel = 'openai/dear'", "by its alias"),
        ("[task]\nyolo = true", "unknown field `yolo`"),
        ("[task]\nmax_turns = -1", "max_turns"),
        ("[task]\nmax_turns = 4294967296", "max_turns"),
        ("task = 3", "[task]"),
        ("#" * 70_000, "bytes"),
    ],
)
def test_a_project_decides_nothing_about_the_host(bench, text, expected) -> None:
    (bench.project / "turnwright.toml").write_text(text)
    done = bench.run("act", "Work.")
    assert done.returncode == 2
    assert f"{bench.project}/turnwright.toml" in done.stderr
    assert expected in done.stderr
