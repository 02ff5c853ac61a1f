"""The image and both compose files, built and run: `make image-test`. Needs buildah, podman and some minutes."""

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import left_out
from ports import free_ports

pytestmark = [pytest.mark.image, pytest.mark.timeout(1200)]

REPO = Path(__file__).resolve().parents[2]
IMAGE, POSTGRES = "localhost/turnwright-test", "localhost/turnwright-test-postgres"
DEMO = "/opt/turnwright/lib/python3*/site-packages/turnwright_cli/demo/project"
WAIT_S = 120
# Inside of another container the default runtime may lack rights that these grant or do without.
ENGINE = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[network]
network_backend = "netavark"
"""


def run(*words: str | Path, check: bool = True, **more) -> str:
    """What a command prints, its complaints included."""
    done = subprocess.run(
        [str(word) for word in words], cwd=REPO, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=900, check=False, **more,
    )  # fmt: skip
    assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def engine(tmp_path_factory) -> Iterator[None]:
    """The container engine, with images of this checkout."""
    if not (shutil.which("podman") and shutil.which("buildah")):
        left_out(
            "podman and buildah",
            "apt-get install buildah podman runc catatonit netavark aardvark-dns iptables mmdebstrap",
        )
    conf = tmp_path_factory.mktemp("engine") / "containers.conf"
    conf.write_text(ENGINE)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CONTAINERS_CONF", str(conf))
        run(".ci/base-image")
        build = ("buildah", "bud", "--isolation", "chroot", "--layers", "--pull-never")
        certificates = ("-v", "/etc/ssl/certs:/etc/ssl/certs:ro")  # what this machine trusts, a proxy perhaps
        run(*build, *certificates, "-f", "deploy/Containerfile", "-t", IMAGE, ".")
        run(*build, "-f", "tests/deploy/postgres.Containerfile", "--ignorefile", "/dev/null", "-t", POSTGRES, ".")
        yield


@contextlib.contextmanager
def composed(file: str, projects: Path) -> Iterator[dict[str, str]]:
    """The containers of a compose file, by their services; each is ready."""
    projects.mkdir()
    os.chown(projects, 10001, 10001)
    port, second_port = map(str, free_ports(2))
    settings = {"TURNWRIGHT_TOKEN": "s" * 64, "POSTGRES_PASSWORD": "p" * 32, "TURNWRIGHT_IMAGE": IMAGE,
                "POSTGRES_IMAGE": POSTGRES, "TURNWRIGHT_PROJECTS": str(projects), "TURNWRIGHT_PORT": port,
                "TURNWRIGHT_SECOND_PORT": second_port}  # fmt: skip
    compose = (shutil.which("podman-compose") or REPO / ".venv/bin/podman-compose", "-f", f"deploy/{file}")
    environment = {**os.environ, **settings}
    try:
        run(*compose, "up", "-d", "--no-build", env=environment)
        listed = json.loads(run("podman", "ps", "-a", "--format", "json"))
        found = {one["Labels"]["com.docker.compose.service"]: one["Names"][0] for one in listed if one.get("Labels")}
        for name in found.values():
            ready(name)
        yield found
    finally:
        run(*compose, "down", "-v", "-t", "20", env=environment, check=False)


def ready(container: str) -> None:
    """Wait until a container's own check of its health passes."""
    end_s = time.monotonic() + WAIT_S
    while "unhealthy" in (said := run("podman", "healthcheck", "run", container, check=False)) or said.strip():
        assert time.monotonic() < end_s, f"{container}: {said}\n{run('podman', 'logs', container)}"
        time.sleep(1)


def inside(container: str, script: str) -> str:
    """What a shell in a container prints."""
    return run("podman", "exec", container, "sh", "-euc", script)


JOB = f"""
cp -r {DEMO} /projects/NAME && cd /projects/NAME && git init -q .
turnwright act 'fix the failing test' --model demo --project /projects/NAME --run NAME --yolo
python -m unittest -q
"""

READ = 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:9464/metrics").read().decode())'


@pytest.fixture(autouse=True)
def scripted_model(engine) -> Iterator[None]:
    """A model for the deployments, and metrics as in Kubernetes, named where their settings stand."""
    file = REPO / "deploy/turnwright.env"
    text = file.read_text()
    file.write_text(text + "TURNWRIGHT_MODEL_demo=scripted/demo\nTURNWRIGHT_METRICS_LISTEN=127.0.0.1:9464\n")
    try:
        yield
    finally:
        file.write_text(text)


def test_one_container_does_a_job_and_keeps_it(tmp_path: Path) -> None:
    with composed("compose.yaml", tmp_path / "projects") as found:
        one = found["turnwright"]
        assert inside(one, "id -u").strip() == "10001"
        assert "Read-only file system" in inside(one, "touch /opt/x 2>&1 || true")
        assert "bubblewrap" in inside(one, "turnwright doctor")
        assert "OK" in inside(one, JOB.replace("NAME", "a"))
        assert "turnwright_turn_duration" in inside(one, f"python -c '{READ}'")
        run("podman", "restart", "-t", "40", one)
        ready(one)
        assert "a\t" in inside(one, "cd /projects/a && turnwright runs | cat")
        run("podman", "stop", "-t", "40", one)
        assert run("podman", "inspect", "--format", "{{.State.ExitCode}}", one).strip() == "0"


def test_replicas_take_over_from_each_other(tmp_path: Path) -> None:
    with composed("compose.postgres.yaml", tmp_path / "projects") as found:
        assert "OK" in inside(found["executor-1"], JOB.replace("NAME", "a"))
        assert "a\t" in inside(found["executor-2"], "cd /projects/a && turnwright runs | cat")
        run("podman", "kill", found["store-1"])
        run("podman", "kill", found["executor-1"])
        assert "OK" in inside(found["executor-2"], JOB.replace("NAME", "b"))
