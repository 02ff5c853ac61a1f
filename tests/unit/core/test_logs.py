"""One line for each event, without secrets; what libraries log through Python's own logging comes in the same form."""

import io
import json
import logging
import os
import re
import sys
from pathlib import Path

import pytest

from turnwright_kit.logs import LibraryLogHandler, configure_logs, get_logger


@pytest.fixture
def lines(capsys):
    """Configures the logs at a level, and reads what was written then."""

    def read(level, say):
        configure_logs(level)
        say(logging.getLogger("psycopg"))
        return [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    yield read
    configure_logs("warning")
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, LibraryLogHandler)]:
        root.removeHandler(handler)


def test_a_librarys_warning_is_one_line_with_its_name(lines):
    (line,) = lines("info", lambda log: log.warning("error ignored terminating %r", "the pipeline"))
    said = {"event": "library_logged", "library": "psycopg", "text": "error ignored terminating 'the pipeline'"}
    assert line.items() >= {**said, "level": "warning"}.items()


@pytest.mark.parametrize(("level", "say"), [("error", logging.Logger.warning), ("info", logging.Logger.info)])
def test_what_a_library_says_below_the_level_is_left_out(lines, level, say):
    assert lines(level, lambda log: say(log, "this and that")) == []


def test_a_librarys_exception_comes_along(lines):
    def fail(log):
        log.error("it failed", exc_info=ValueError("broken"))

    (line,) = lines("error", fail)
    assert line["level"] == "error"
    assert "ValueError: broken" in line["exception"]


def test_that_a_caller_left_while_it_was_answered_is_no_error(lines):
    """gRPC says so at the level of errors."""
    text = "ExecuteBatchError raised in core by servicer method [/x.Y/Z]"
    assert lines("info", lambda log: log.error(text)) == []
    (line,) = lines("debug", lambda log: log.error(text))
    assert (line["level"], line["text"]) == ("debug", text)


def test_a_file_that_lines_no_longer_go_to_is_closed(lines, tmp_path):
    configure_logs("info", tmp_path / "first.log")
    (line,) = lines("info", lambda log: log.warning("now here"))
    assert line["text"] == "now here"
    assert (tmp_path / "first.log").read_text() == ""
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if os.path.realpath(fd).endswith("first.log")]


def test_an_event_is_one_line_of_json_without_secrets(lines):
    (line,) = lines("info", lambda _: get_logger("part").info("happened", run="r", token="hush", size=3))
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "happened",
        "logger": "part",
        "level": "info",
        "run": "r",
        "token": "[redacted]",
        "size": 3,
    }


def test_an_exception_is_reported_with_its_traceback_and_without_local_variables(lines):
    def fail(_):
        hidden = "hush"
        try:
            int(f"four, not {len(hidden)}")
        except ValueError as error:
            get_logger("part").error("failed", exc_info=error)

    (line,) = lines("info", fail)
    assert "Traceback" in line["exception"]
    assert "four, not 4" in line["exception"]
    assert '"hush"' not in line["exception"].replace('hidden = "hush"', "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_people_on_a_terminal_read_words_that_cannot_steer_it(lines, monkeypatch):
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        configure_logs("info")
        get_logger("part").warning("happened", run="r", text="a\x1b[2Jb", size=3)
    said = re.sub(r"\x1b\[\d*m", "", terminal.getvalue())
    assert "\x1b" not in said
    assert re.search(r"warning +\] happened +\[part\] run=r size=3 text=.?a\\+x1b\[2Jb.?\n", said)


def test_a_log_that_cannot_be_written_ends_nothing(lines, monkeypatch):
    configure_logs("info")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", closed := io.StringIO())
        closed.close()
        assert get_logger("part").error("happened") is None
