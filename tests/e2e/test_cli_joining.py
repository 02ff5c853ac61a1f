"""A terminal that meets services which run already is told whose settings hold. Architecture 13."""

from __future__ import annotations

import json

import pytest

from e2e.cli_process import Bench, serving
from services import token_for

DONE = '<update status="200">Done.</update>'
SECRET = "sk-first-hidden"
OTHER = "sk-other-hidden"


SET = {"OPENAI_API_KEY": SECRET, "TURNWRIGHT_STRIKES_MAX": "5"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("stack"), "m", "slow", **SET) as root:
        yield root


@pytest.fixture
def bench(tmp_path) -> Bench:
    """A home without a running stack."""
    return scripted(Bench(tmp_path, dict(SET)))


@pytest.fixture
def joining(tmp_path, stack) -> Bench:
    """The home of the running stack."""
    return scripted(Bench(tmp_path, dict(SET), stack))


def scripted(made: Bench) -> Bench:
    made.script("m", DONE)
    made.script("slow", f"<sh>touch begun; while [ ! -e go ]; do sleep 0.1; done</sh>{DONE}", DONE)
    return made


def settings_told(shown: str) -> list[str]:
    """What stands below the title of the settings in force."""
    _, _, rest = shown.partition("settings in force:\n")
    return [line.strip() for line in rest.split("\nservices:")[0].splitlines() if line.startswith("  ")]


def test_doctor_tells_the_settings_of_the_server_and_not_of_the_terminal(joining) -> None:
    here = {"TURNWRIGHT_STRIKES_MAX": "7", "OPENAI_API_KEY": OTHER, "TURNWRIGHT_MODEL_new": "scripted/new"}
    told = joining.run("doctor", TURNWRIGHT_RUN="mine", **here)
    status = json.loads(joining.run("doctor", "--json", **here).stdout)
    assert "TURNWRIGHT_STRIKES_MAX=5" in settings_told(told.stdout)
    assert "TURNWRIGHT_OPENAI_API_KEY=(set)" in settings_told(told.stdout)
    assert "TURNWRIGHT_MODEL_m=scripted/m" in settings_told(told.stdout)
    assert "TURNWRIGHT_RUN=mine" in told.stdout.partition("settings in force:")[0]
    differing = "TURNWRIGHT_MODEL_new, TURNWRIGHT_OPENAI_API_KEY, TURNWRIGHT_STRIKES_MAX"
    assert f"the running services use other values for: {differing}" in told.stdout
    executor = next(one for one in status["services"] if one["name"] == "SERVICE_NAME_EXECUTOR")
    assert [one["value"] for one in executor["settings"] if one["variable"] == "TURNWRIGHT_STRIKES_MAX"] == ["5"]
    assert "hidden" not in told.stdout + told.stderr + json.dumps(status)


def test_a_terminal_with_the_same_variables_is_told_of_no_difference(joining) -> None:
    done = joining.run("act", "Do it.", "--model", "m")
    assert (done.returncode, done.stderr) == (0, "")
    assert "other values" not in joining.run("doctor").stdout


def test_what_only_the_services_have_is_not_said_to_be_set_here(joining) -> None:
    mine = {name: value for name, value in joining.environment.items() if name != "TURNWRIGHT_STRIKES_MAX"}
    bare = Bench(joining.root, mine, joining.stack)
    done = bare.run("act", "Do it.", "--model", "m")
    assert (done.returncode, done.stderr) == (0, "")
    assert "set only where the services run: TURNWRIGHT_STRIKES_MAX" in bare.run("doctor").stdout


def test_a_variable_that_no_setting_has_is_told_at_once(joining) -> None:
    done = joining.run("act", "Do it.", "--model", "m", TURNWRIGHT_STRIKE_MAX="3")
    assert done.returncode == 0
    assert (
        done.stderr == "turnwright: no setting is called TURNWRIGHT_STRIKE_MAX (did you mean TURNWRIGHT_STRIKES_MAX?)\n"
    )


def test_a_task_for_running_services_is_told_which_variables_have_no_effect(joining) -> None:
    done = joining.run("act", "Do it.", "--model", "m", "--json", OPENAI_API_KEY=OTHER, OPENAI_BASE_URL="http://h/v1")
    assert done.returncode == 0
    names = "TURNWRIGHT_OPENAI_API_KEY, TURNWRIGHT_OPENAI_BASE_URL"
    assert done.stderr == f"turnwright: the running services use other values than this terminal for: {names}\n"


def test_a_second_command_is_told_that_it_joins_the_first_one(bench) -> None:
    with bench.running("act", "Work.", "--model", "slow", "--yolo") as first:
        first.wait_for("turn 1")
        second = bench.run("act", "Do it.", "--model", "m", OPENAI_API_KEY=OTHER)
        (bench.project / "go").touch()
        assert first.end() == 0
    assert second.returncode == 0
    assert "using the services that another command has started" in second.stderr
    assert "TURNWRIGHT_OPENAI_API_KEY" in second.stderr


def test_a_derived_token_is_told_no_settings(joining) -> None:
    address = json.loads((joining.home / "run/stack.json").read_text())["executor"]
    token = token_for("guest", secret=(joining.home / "token").read_text().strip())
    other = {"TURNWRIGHT_HOME": str(joining.root / "other"), "TURNWRIGHT_TOKEN": token}
    status = json.loads(joining.run("doctor", "--json", "--server", address, **other).stdout)
    names = {service["name"].removeprefix("SERVICE_NAME_") for service in status["services"]}
    assert names == {"STORE", "ASSEMBLER", "PROVIDER", "EXECUTOR"}
    assert not any("settings" in service for service in status["services"])


def test_without_an_answer_the_settings_of_the_terminal_are_called_that(bench) -> None:
    told = bench.run("doctor", "--server", "127.0.0.1:1")
    assert told.returncode == 5
    assert "settings of this terminal; no service answered:\n" in told.stdout
    assert "TURNWRIGHT_STRIKES_MAX=5" in told.stdout
    assert "hidden" not in told.stdout + told.stderr
