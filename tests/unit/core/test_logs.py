"""What libraries log through Python's own logging comes in our form, at our level."""

import json
import logging
import os
from pathlib import Path

import pytest
import structlog

from turnwright_core.kit.logs import FromLibraries, configure_logs


@pytest.fixture
def lines(capsys):
    """Configures the logs at a level, and reads what was written then."""

    def read(level, say):
        configure_logs(level)
        say(logging.getLogger("psycopg"))
        return [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    yield read
    structlog.reset_defaults()
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, FromLibraries)]:
        root.removeHandler(handler)


def test_a_librarys_warning_is_one_line_with_its_name(lines):
    (line,) = lines("info", lambda log: log.warning("error ignored terminating %r", "the pipeline"))
    said = {"event": "library said", "library": "psycopg", "text": "error ignored terminating 'the pipeline'"}
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


def test_a_file_that_lines_no_longer_go_to_is_closed(lines, tmp_path):
    configure_logs("info", tmp_path / "first.log")
    (line,) = lines("info", lambda log: log.warning("now here"))
    assert line["text"] == "now here"
    assert (tmp_path / "first.log").read_text() == ""
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if os.path.realpath(fd).endswith("first.log")]
