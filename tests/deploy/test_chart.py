"""The Helm chart: it gives what the overlays of kustomize give, and its values change what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from deploy.custom_kinds import KINDS
from deploy.test_manifests import find, shown
from turnwright_core import __version__
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.tool_servers import servers_in
from turnwright_kit.identity.identity_file import read_identity_file

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart"
HELM = ROOT / ".release-venv" / "bin" / "helm"
HTTP = {"enabled": True, "hosts": ["localhost"]}
ON = {"enabled": True}
pytestmark = [
    pytest.mark.skipif(not HELM.exists(), reason="needs helm: `make chart`"),
    pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl: it builds the manifests"),
]


@pytest.fixture(scope="module")
def chart(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("chart")
    subprocess.run([sys.executable, CHART / "make.py", folder], check=True, timeout=300)
    return folder / "turnwright"


def rendered(chart: Path, **values: Any) -> list[dict[str, Any]]:
    done = run(chart, values)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def run(chart: Path, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    words = [HELM, "template", "release", chart, "--values", "-"]
    return subprocess.run(words, input=json.dumps(values), capture_output=True, text=True, timeout=60, check=False)


def bare(value: Any) -> Any:
    """A manifest without what only a chart has, with its names in the place of generated ones, and without null."""
    if isinstance(value, dict):
        kept = {key: bare(each) for key, each in value.items() if each is not None and key != "turnwright/config"}
        return {key: each for key, each in kept.items() if each or key not in ("annotations", "envFrom")}
    if isinstance(value, list):
        return [bare(each) for each in value if each != {"configMapRef": {"name": "turnwright-own"}}]
    return (
        re.sub(r"^(turnwright(-identity|-servers)?)-[0-9a-z]{10}$", r"\1", value) if isinstance(value, str) else value
    )


def by_key(manifests: list[dict[str, Any]]) -> dict[tuple[str, ...], Any]:
    every = map(bare, manifests)
    return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in every}


def chosen(folder: Path, overlay: str, components: list[str]) -> Path:
    """An overlay of somebody's own, as docs/deploy.md has it."""
    manifests = os.path.relpath(ROOT / "deploy" / "kubernetes", folder.resolve())
    own = {
        "resources": [f"{manifests}/overlays/{overlay}"],
        "components": [f"{manifests}/components/{each}" for each in components],
        "images": [{"name": "turnwright", "newTag": __version__}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(own))
    return folder


@pytest.mark.parametrize(
    ("overlay", "components"),
    [
        ("tls", []),
        ("mesh", []),
        ("mesh", ["http"]),
        ("tls", ["https"]),
        ("tls", ["sandbox"]),
        ("tls", ["mcp"]),
        ("tls", ["https", "mcp"]),
        ("tls", ["https", "sandbox", "mcp"]),
    ],
)
def test_it_gives_what_kustomize_gives(chart, tmp_path, overlay, components) -> None:
    expected = by_key(shown(chosen(tmp_path, overlay, components)))
    values: dict[str, Any] = {each.rstrip("s"): HTTP if each.startswith("http") else ON for each in components}
    made = by_key(rendered(chart, protection=overlay, image={"repository": "turnwright"}, **values))
    for namespace in ("turnwright", "turnwright-executors"):
        assert made.pop(("ConfigMap", namespace, "turnwright-own"))["data"] == {}
    for one in made.values():
        if one["kind"] == "Deployment":
            assert one["spec"]["template"]["spec"].pop("imagePullSecrets") == []
            for container in one["spec"]["template"]["spec"]["containers"]:
                assert container.pop("imagePullPolicy") == "IfNotPresent"
    # The autoscaler has the number of executors.
    del expected["Deployment", "turnwright-executors", "executor"]["spec"]["replicas"]
    assert made == expected


EVERYTHING: dict[str, Any] = {
    "protection": "mesh",
    "namespaces": {"services": "agents", "executors": "agents-commands"},
    "image": {"repository": "registry.example.com/turnwright", "digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": ["registry"],
    "config": {"services": {"TURNWRIGHT_LOG_LEVEL": "debug"}, "executors": {"TURNWRIGHT_LAME_DUCK_S": 7}},
    "identity": '[[issuer]]\nname = "corp"\nurl = "https://id.example.com"\naudience = "turnwright"\n',
    "store": {"replicas": 3, "resources": {"limits": {"memory": "2Gi"}}},
    "autoscaling": {"enabled": False},
    "executor": {"replicas": 4},
    "projects": {"existingClaim": "ours"},
    "podMonitor": {"enabled": True, "labels": {"team": "platform"}},
    "http": {"enabled": True, "hosts": ["agents-http.example.com"], "origins": ["https://pages.example.com"]},
    "gateway": {"enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["agents.example.com"]},
    "authorizationPolicies": {"enabled": True, "clients": ["cluster.local/ns/gateways/sa/public"]},
}


def accepted(made: list[dict[str, Any]]) -> set[str]:
    """The kinds among these; the API and the definitions of others would accept each."""
    for one in made:
        if schema := KINDS.get(one["kind"]):
            jsonschema.validate(one, schema)
        else:
            kubernetes_validate.validate(one, "1.37", strict=True)
    return {one["kind"] for one in made}


@pytest.mark.parametrize(
    ("values", "custom"),
    [
        ({}, set()),
        ({"protection": "mesh"}, set()),
        ({"http": HTTP}, set()),
        ({"protection": "mesh", "http": HTTP, "namespaces": {"create": False}}, set()),
        ({"gateway": {"enabled": True, "parentRefs": [{"name": "public"}]}}, {"GRPCRoute"}),
        ({"podMonitor": {"enabled": True}, "autoscaling": {"enabled": False}}, {"PodMonitor"}),
        ({"protection": "mesh", "authorizationPolicies": {"enabled": True}}, {"AuthorizationPolicy"}),
        ({"protection": "mesh", "http": HTTP, "authorizationPolicies": {"enabled": True}}, {"AuthorizationPolicy"}),
        ({"http": HTTP, "sandbox": ON, "mcp": ON}, set()),
        (EVERYTHING, set(KINDS)),
    ],
)
def test_the_api_accepts_what_is_made_of_each_set_of_values(chart, values, custom) -> None:
    assert accepted(rendered(chart, **values)) & set(KINDS) == custom


def test_each_value_changes_what_it_says(chart) -> None:
    made = rendered(chart, **EVERYTHING)
    found = partial(find, made)
    assert {one["metadata"].get("namespace", one["metadata"]["name"]) for one in made} == {"agents", "agents-commands"}
    store, executor = (found("Deployment", name)["spec"] for name in ("store", "executor"))
    assert (store["replicas"], executor["replicas"]) == (3, 4)
    pod = store["template"]["spec"]
    assert pod["containers"][0]["image"] == f"registry.example.com/turnwright@sha256:{'0' * 64}"
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "2Gi"}
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    settings = [one["data"] for one in made if one["metadata"]["name"] == "turnwright-own"]
    assert settings == [{"TURNWRIGHT_LOG_LEVEL": "debug"}, {"TURNWRIGHT_LAME_DUCK_S": "7"}]
    base = next(one["data"] for one in made if one["kind"] == "ConfigMap" and "TURNWRIGHT_PROVIDER" in one["data"])
    assert base["TURNWRIGHT_STORE"] == "dns:///store.agents:7441"
    assert not {"HorizontalPodAutoscaler", "PersistentVolumeClaim"} & {one["kind"] for one in made}
    claims = [
        one["persistentVolumeClaim"]
        for one in executor["template"]["spec"]["volumes"]
        if len(one) > 1 and "persistentVolumeClaim" in one
    ]
    assert claims == [{"claimName": "ours"}]
    assert found("PodMonitor", "turnwright")["metadata"]["labels"] == {"team": "platform"}
    for kind, port, hosts in (
        ("GRPCRoute", 7440, "agents.example.com"),
        ("HTTPRoute", 7444, "agents-http.example.com"),
    ):
        route = found(kind, "turnwright")["spec"]
        assert (route["parentRefs"], route["hostnames"]) == ([{"name": "public"}], [hosts])
        assert [one["backendRefs"] for one in route["rules"]] == [[{"name": "executor", "port": port}]]


@pytest.mark.parametrize("protection", ["tls", "mesh"])
def test_http_is_off_unless_somebody_asks_for_it(chart, monkeypatch, protection) -> None:
    every = rendered(chart, protection=protection)
    assert "7444" not in json.dumps(every)
    made = rendered(chart, protection=protection, http={**HTTP, "origins": ["https://a.example", "https://b.example"]})
    ports = {one["name"]: one for one in find(made, "Service", "executor")["spec"]["ports"]}
    assert (ports["http"]["port"], ports["http"]["appProtocol"]) == (7444, "https" if protection == "tls" else "http")
    (settings,) = (one["data"] for one in made if "TURNWRIGHT_HTTP_LISTEN" in one.get("data", {}))
    assert settings["TURNWRIGHT_HTTP_ORIGINS"] == "https://a.example,https://b.example"
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    port = ExecutorSettings().http
    assert port is not None
    assert (port.address, port.hosts) == ("0.0.0.0:7444", ("localhost",))
    before, after = (
        find(one, "Deployment", "executor")["spec"]["template"]["metadata"]["annotations"]["turnwright/config"]
        for one in (every, made)
    )
    assert before != after


def test_a_sandbox_host_and_what_calls_mcp_servers_are_as_the_values_say(chart) -> None:
    made = rendered(
        chart,
        namespaces=EVERYTHING["namespaces"],
        config={"executors": {"TURNWRIGHT_MCP_HOSTS": "*.example.com"}},
        projects={"existingClaim": "ours"},
        sandbox={**ON, "image": "registry.example.com/box:1", "projects": {"size": "5Gi"}},
        mcp={**ON, "image": "registry.example.com/tickets:1", "resources": {"limits": {"memory": "3Gi"}}},
    )
    found = partial(find, made)
    (claim,) = (one for one in made if one["kind"] == "PersistentVolumeClaim")
    assert (claim["metadata"]["name"], claim["spec"]["resources"]["requests"]["storage"]) == ("sandbox-projects", "5Gi")
    (box,) = found("Deployment", "sandbox")["spec"]["template"]["spec"]["containers"]
    executor, bridge = found("Deployment", "executor")["spec"]["template"]["spec"]["containers"]
    images = [one["image"].rpartition("/")[2] for one in (executor, box, bridge)]
    assert images == [f"turnwright:{__version__}", "box:1", "tickets:1"]
    assert bridge["resources"]["limits"] == {"memory": "3Gi"}
    # What settings are in, and no secret: neither that of executors nor the key.
    assert box["envFrom"] == bridge["envFrom"] == [{"configMapRef": {"name": "turnwright-own"}}]
    (file,) = (one["data"]["servers.toml"] for one in made if "servers.toml" in one.get("data", ()))
    (server,) = servers_in(file).servers
    assert (server.workspaces, server.host) == (True, "sandbox.agents-commands")


@pytest.mark.parametrize("protection", ["tls", "mesh"])
def test_services_are_known_by_the_names_that_they_have_there(chart, tmp_path, protection) -> None:
    values = {**EVERYTHING, "protection": protection}
    values["authorizationPolicies"] = {"enabled": protection == "mesh", "trustDomain": "corp.example"}
    maps = [one for one in rendered(chart, **values) if "identity.toml" in one.get("data", ())]
    spaces = {one["metadata"]["namespace"] for one in maps}
    assert spaces == ({"agents", "agents-commands"} if protection == "tls" else {"agents"})
    for one in maps:
        (tmp_path / "identity.toml").write_text(one["data"]["identity.toml"])
        found = read_identity_file(tmp_path / "identity.toml", is_needed=True)
        domain = "turnwright" if protection == "tls" else "corp.example"
        assert {peer.uri for peer in found.peer} == {
            f"spiffe://{domain}/ns/agents-commands/sa/executor", f"spiffe://{domain}/ns/agents/sa/assembler",
        }  # fmt: skip
        assert [issuer.name for issuer in found.issuer] == ["corp"]


def test_the_mesh_admits_whom_the_network_admits(chart) -> None:
    made = rendered(chart, **EVERYTHING)
    admitted = {
        one["metadata"]["name"]: sorted(rule["from"][0]["source"]["principals"])
        for one in made
        if one["kind"] == "AuthorizationPolicy"
        for rule in one["spec"]["rules"]
        if "from" in rule and rule["to"][0]["operation"]["ports"] != ["7444"]
    }
    http = [rule["from"] for rule in find(made, "AuthorizationPolicy", "executor")["spec"]["rules"]
            if rule["to"][0]["operation"]["ports"] == ["7444"]]  # fmt: skip
    assert http == [[{"source": {"principals": ["cluster.local/ns/gateways/sa/public"]}}]]
    store, assembler, executor = (
        f"cluster.local/ns/{at}" for at in ("agents/sa/store", "agents/sa/assembler", "agents-commands/sa/executor")
    )
    assert admitted == {
        "store": sorted([assembler, executor]),
        "assembler": [executor],
        "provider": [executor],
        "executor": [executor, "cluster.local/ns/gateways/sa/public"],
    }
    assert store not in str(admitted)


def test_changed_settings_restart_the_pods(chart) -> None:
    def told(**config: Any) -> dict[str, str]:
        made = rendered(chart, config=config)
        names = ("store", "executor")
        return {
            name: find(made, "Deployment", name)["spec"]["template"]["metadata"]["annotations"]["turnwright/config"]
            for name in names
        }

    before, after = told(), told(executors={"TURNWRIGHT_LAME_DUCK_S": 7})
    assert before["store"] == after["store"]
    assert before["executor"] != after["executor"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"protection": "none"}, "protection"),
        ({"replicas": 3}, "replicas"),
        ({"store": {"replicas": "three"}}, "replicas"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"namespaces": {"services": "Agents"}}, "services"),
        ({"namespaces": {"executors": "turnwright"}}, "must differ"),
        ({"config": {"services": {"log level": "debug"}}}, "services"),
        ({"gateway": {"enabled": True}}, "parentRefs"),
        ({"gateway": {"enabled": True, "parentRefs": [{"name": "a"}]}, "http": HTTP}, "one kind of route"),
        (
            {"gateway": {"enabled": True, "parentRefs": [{"name": "a"}], "hostnames": ["localhost"]}, "http": HTTP},
            "localhost is in gateway.hostnames and in http.hosts",
        ),
        ({"http": {"enabled": True}}, "hosts"),
        ({"http": {"enabled": True, "hosts": ["agents.example.com:7444"]}}, "hosts"),
        ({"http": {"enabled": True, "hosts": ["a.example"], "origins": ["*"]}}, "origins"),
        ({"http": {"enabeld": True}}, "enabeld"),
        ({"authorizationPolicies": {"enabled": True}}, "needs `protection: mesh`"),
        ({"protection": "mesh", "sandbox": ON}, "need `protection: tls`"),
        ({"protection": "mesh", "mcp": ON}, "need `protection: tls`"),
        ({"sandbox": {"projects": {"size": "much"}}}, "size"),
    ],
)
def test_a_value_that_means_nothing_is_refused(chart, values, told) -> None:
    done = run(chart, values)
    assert done.returncode != 0
    assert told in done.stderr


def paths(values: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key != "resources":
            yield from paths(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def test_each_value_is_of_use_and_in_the_schema(chart) -> None:
    texts = "".join(path.read_text() for path in (chart / "templates").iterdir())
    values = yaml.safe_load((chart / "values.yaml").read_text())
    assert [path for path in paths(values) if f".Values.{path}" not in texts] == []
    schema = json.loads((chart / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}


def test_it_is_of_this_release(chart) -> None:
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == (__version__, __version__)
