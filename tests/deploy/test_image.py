"""The image and both compose files, built and run: `make image-test`. Needs buildah, podman and some minutes."""

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import left_out
from ports import free_ports

pytestmark = [pytest.mark.image, pytest.mark.timeout(1200)]

REPO = Path(__file__).resolve().parents[2]
IMAGE, POSTGRES = "localhost/turnwright-test", "localhost/turnwright-test-postgres"
PROJECT = "turnwright-image-test"
"""Of compose, so that nobody's own containers and volumes are taken for these."""
SECRET = "s" * 64
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
def composed(file: str, folder: Path) -> Iterator[dict[str, str]]:
    """The containers of a compose file, by their services; each is ready. They have projects in the folder, and a scripted model."""
    projects = folder / "projects"
    projects.mkdir()
    os.chown(projects, 10001, 10001)
    for each in (file, "sandbox.servers.toml"):
        shutil.copy(REPO / "deploy" / each, folder)
    # Metrics as in Kubernetes.
    more = "TURNWRIGHT_MODEL_demo=scripted/demo\nTURNWRIGHT_METRICS_LISTEN=127.0.0.1:9464\n"
    (folder / "turnwright.env").write_text((REPO / "deploy" / "turnwright.env").read_text() + more)
    port, second_port, http_port = map(str, free_ports(3))
    settings = {"TURNWRIGHT_TOKEN": SECRET, "SANDBOX_TOKEN": "s" * 32, "POSTGRES_PASSWORD": "p" * 32, "TURNWRIGHT_IMAGE": IMAGE,
                "POSTGRES_IMAGE": POSTGRES, "TURNWRIGHT_PROJECTS": str(projects), "TURNWRIGHT_PORT": port,
                "TURNWRIGHT_SECOND_PORT": second_port, "TURNWRIGHT_HTTP_PORT": http_port,
                "COMPOSE_PROJECT_NAME": PROJECT}  # fmt: skip
    compose = (shutil.which("podman-compose") or REPO / ".venv/bin/podman-compose", "-f", folder / file)
    environment = {**os.environ, **settings}
    try:
        run(*compose, "up", "-d", "--no-build", env=environment)
        ours = f"label=com.docker.compose.project={PROJECT}"
        listed = json.loads(run("podman", "ps", "-a", "--filter", ours, "--format", "json"))
        found = {one["Labels"]["com.docker.compose.service"]: one["Names"][0] for one in listed}
        for service, name in found.items():
            if service != "credentials":
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
TOKEN turnwright act 'fix the failing test' --model demo --project /projects/NAME --run NAME --yolo
python -m unittest -q
"""


def job(name: str, token: str = "") -> str:
    """A script that does a task in a project of its own, by the token of a client or the container's own."""
    return JOB.replace("NAME", name).replace("TOKEN ", f"TURNWRIGHT_TOKEN={token} " if token else "")


def token_of_an_operator(store: str) -> str:
    """Made as docs/deploy.md says it."""
    inside(store, "turnwright grant set operator user:ops --deployment --server 127.0.0.1:7441")
    return inside(store, "turnwright token create --offline --principal ops").strip()


READ = 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:9464/metrics").read().decode())'


def test_a_project_on_a_sandbox_host_is_worked_on_there(engine, tmp_path: Path) -> None:
    with composed("compose.sandbox.yaml", tmp_path) as found:
        one, box = found["turnwright"], found["sandbox"]
        inside(box, f"cp -r {DEMO} /projects/a && cd /projects/a && git init -q .")
        inside(one, "turnwright act 'fix the failing test' --model demo --project box:/a --run a --yolo")
        assert "OK" in inside(box, "cd /projects/a && python -m unittest -q 2>&1")
        assert "DEPLOYMENT" not in inside(box, f"env | grep -q {SECRET} && echo DEPLOYMENT || true")


def test_one_container_does_a_job_and_keeps_it(engine, tmp_path: Path) -> None:
    with composed("compose.yaml", tmp_path) as found:
        one = found["turnwright"]
        assert inside(one, "id -u").strip() == "10001"
        assert "Read-only file system" in inside(one, "touch /opt/x 2>&1 || true")
        assert "bubblewrap" in inside(one, "turnwright doctor")
        assert "OK" in inside(one, job("a"))
        port = run("podman", "port", one, "7444").strip()
        about = urllib.request.urlopen(f"http://{port}/openapi.json", timeout=30)
        assert "turnwright.executor.v1.ExecutorService" in about.read().decode()
        assert "turnwright_turn_duration" in inside(one, f"python -c '{READ}'")
        run("podman", "restart", "-t", "40", one)
        ready(one)
        assert "a\t" in inside(one, "cd /projects/a && turnwright runs | cat")
        run("podman", "stop", "-t", "40", one)
        assert run("podman", "inspect", "--format", "{{.State.ExitCode}}", one).strip() == "0"


def test_replicas_take_over_from_each_other(engine, tmp_path: Path) -> None:
    with composed("compose.postgres.yaml", tmp_path) as found:
        told = inside(found["executor-1"], "turnwright doctor")
        assert told.count(": serves at ") == 4
        assert "not asked: vendors" in told
        token = token_of_an_operator(found["store-1"])
        assert "OK" in inside(found["executor-1"], job("a", token))
        assert "a\t" in inside(found["executor-2"], f"cd /projects/a && TURNWRIGHT_TOKEN={token} turnwright runs | cat")
        for service, name in found.items():
            if service not in ("postgres", "credentials"):
                has_secret = SECRET in inside(name, "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; env")
                assert has_secret == service.startswith("store"), service
        run("podman", "kill", found["store-1"])
        run("podman", "kill", found["executor-1"])
        assert "OK" in inside(found["executor-2"], job("b", token))


LOCKED = (
    *("--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges"),
    *("--network", "none", "--tmpfs", "/tmp"),
)


@pytest.mark.parametrize("user", ["54321:54321", "54321:0"])
def test_it_runs_read_only_as_anybody_without_capabilities(engine, tmp_path: Path, user) -> None:
    """Somebody who is in no list of users, with the mounts that docs/deploy.md names and nothing else to write to."""
    name, volume = f"{PROJECT}-{user.partition(':')[2]}", f"{PROJECT}-home"
    own = tmp_path / "home"
    own.mkdir()
    os.chown(own, 54321, 54321)
    # Who is of root's group may write what an engine makes of the image's home; anybody else has one of their own.
    home = f"{volume if user.endswith(':0') else own}:/var/lib/turnwright"
    words = (*LOCKED, "--user", user, "--volume", home)
    try:
        assert "The demo is complete: red, repaired, green." in run("podman", "run", "--rm", *words, IMAGE, "demo")
        run("podman", "run", "--detach", "--name", name, *words, "--env", "TURNWRIGHT_INSECURE=true", IMAGE)
        end_s = time.monotonic() + WAIT_S
        while "yes" not in run("podman", "exec", name, "sh", "-c", "turnwright-health && echo yes", check=False):
            assert time.monotonic() < end_s, run("podman", "logs", name)
            time.sleep(0.2)
        assert "Read-only file system" in inside(name, "touch /opt/x 2>&1 || true")
        status = dict(line.split(":\t", 1) for line in inside(name, "cat /proc/1/status").splitlines())
        assert {int(status[f"Cap{one}"], 16) for one in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
        assert status["NoNewPrivs"] == "1"
    finally:
        run("podman", "rm", "--force", "--time", "20", name, check=False)
        run("podman", "volume", "rm", "--force", volume, check=False)


def test_who_cannot_write_the_home_is_told_what_to_do(engine) -> None:
    told = run("podman", "run", "--rm", *LOCKED, "--user", "54321:54321", IMAGE, check=False)
    assert "/var/lib/turnwright cannot be created or written: Permission denied. Choose another one" in told
