"""The commands of docs/runbook.md: those for this host run as they stand, and the others name what deploy/ has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from certificates import Authority
from e2e.cli_process import PORTS, Bench

REPO = Path(__file__).parents[2]
TEXT = (REPO / "docs" / "runbook.md").read_text()
WAIT_S = 100


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_commands_for_this_host_work(tmp_path):
    bench = Bench(tmp_path)
    bench.script("m", '<update status="200">Done</update>')
    for name in ("tls", "new"):
        Authority(tmp_path / "ca.pem").issue(tmp_path / name)
    scripts = Path(sys.executable).parent
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    script = "\n".join(blocks("sh"))
    assert script.count("turnwright ") >= 8
    with bench.running("serve", *PORTS) as served:
        served.wait_for("^executor serves at ", "err")
        assert bench.run("act", "Do it.", "--model", "m", "--yolo", "--json").returncode == 0
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", script],
            cwd=tmp_path, env=bench.env(PATH=path), text=True, capture_output=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "token.backup").stat().st_mode & 0o077 == 0
    assert (tmp_path / "tls" / "cert.pem").read_bytes() == (tmp_path / "new" / "cert.pem").read_bytes()


def test_the_commands_for_clusters_name_what_deploy_has():
    base = REPO / "deploy" / "kubernetes" / "base"
    manifests = [one for file in base.rglob("*.yaml") for one in yaml.safe_load_all(file.read_text())]
    deployments = {one["metadata"]["name"] for one in manifests if one["kind"] == "Deployment"}
    text = "\n".join(blocks("shell"))
    named = set(re.findall(r"deployment/(\w+)", text))
    assert named == deployments
    assert set(re.findall(r"(\w+)=turnwright:NEW", text)) == deployments
    # Each in its namespace.
    where = {"executor": "turnwright-executors"}
    for space, rest in re.findall(r"--namespace (\S+) (.*)", text):
        for name in re.findall(r"deployment/(\w+)", rest):
            assert space == where.get(name, "turnwright"), rest
    secrets = (REPO / "deploy" / "kubernetes" / "secrets.example.yaml").read_text()
    for secret in re.findall(r"secret (\S+)", text):
        assert f"name: {secret}," in secrets or f"create secret generic {secret} " in secrets
    for file, service in re.findall(r"-f (deploy/\S+) stop (\S+)", text):
        assert service in yaml.safe_load((REPO / file).read_text())["services"]


def help_of(*command: str) -> str:
    asked = ["kubectl", *command]
    return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl: it knows its own commands")
def test_kubectl_knows_the_commands_and_their_options():
    used: dict[tuple[str, ...], set[str]] = {}
    for line in "\n".join(blocks("shell")).splitlines():
        if line.startswith("kubectl"):
            words = line.split(" -- ")[0].split()[1:]
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            values = {words[place + 1] for place, word in enumerate(words[:-1]) if word.startswith("--")}
            verbs = [word for word in words if not word.startswith("--") and word not in values]
            used.setdefault(tuple(verbs[: 2 if verbs[0] in ("set", "rollout") else 1]), set()).update(options)
    everywhere = help_of("options")
    for command, options in used.items():
        shown = help_of(*command, "--help") + everywhere
        assert {option for option in options if f"{option}=" not in shown} == set(), command
