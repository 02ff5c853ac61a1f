"""The Kubernetes manifests: they build, the API would accept them, and they keep what the run book promises."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from turnwright_cli.stack import settings_class

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"
SERVICES = {"store", "assembler", "provider", "executor"}

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl: it builds the manifests")


@cache
def built(overlay: str) -> list[dict[str, Any]]:
    return shown(MANIFESTS / "overlays" / overlay)


def shown(folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def find(manifests: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(one for one in manifests if (one["kind"], one["metadata"]["name"]) == (kind, name))


def is_restricted(spec: dict[str, Any]) -> bool:
    """Whether a pod meets the Pod Security Standard `restricted`."""
    (container,) = spec["containers"]
    own = container["securityContext"]
    return (
        spec["securityContext"]["runAsNonRoot"]
        and spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        and own["capabilities"] == {"drop": ["ALL"]}
        and own["allowPrivilegeEscalation"] is False
        and "procMount" not in own
    )


@pytest.mark.parametrize("overlay", ["tls", "mesh"])
def test_the_api_accepts_them(overlay) -> None:
    manifests = built(overlay)
    assert manifests
    for one in manifests:
        kubernetes_validate.validate(one, "1.37", strict=True)


@pytest.mark.parametrize("overlay", ["tls", "mesh"])
def test_pods_are_unprivileged_probed_and_drained(overlay) -> None:
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in built(overlay)
        if one["kind"] == "Deployment"
    }
    assert pods.keys() == SERVICES
    for spec in pods.values():
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "lifecycle" in container
        # A pod that waits for its database or a neighbour is not ready; ending it would not help.
        assert not {"startupProbe", "livenessProbe"} & container.keys()
        assert container["readinessProbe"]["httpGet"] == {"path": f"/ready/{container['name']}", "port": "ready"}
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["ready"] != ports["metrics"]
        assert spec["terminationGracePeriodSeconds"] > 20
        assert not spec["automountServiceAccountToken"]
    # What bubblewrap needs; the others need nothing.
    assert {name for name, spec in pods.items() if not is_restricted(spec)} == {"executor"}
    assert pods["executor"]["containers"][0]["securityContext"]["procMount"] == "Unmasked"
    assert pods["executor"]["hostUsers"] is False


def test_services_listen_with_tls_or_say_that_a_mesh_protects_them() -> None:
    for overlay, wanted in (("tls", "TURNWRIGHT_TLS_CERT"), ("mesh", "TURNWRIGHT_INSECURE")):
        for one in built(overlay):
            if one["kind"] == "Deployment":
                (container,) = one["spec"]["template"]["spec"]["containers"]
                assert wanted in {variable["name"] for variable in container["env"]}


def allows(policies: dict[str, Any], caller: str, service: str, port: int) -> bool:
    """Whether a pod may connect to a service: out of its own policy, and into that one's."""

    def has(rules: list[dict[str, Any]], side: str, labels: dict[str, str]) -> bool:
        return any(
            any(labels.items() >= peer["podSelector"]["matchLabels"].items() for peer in rule[side])
            for rule in rules
            if side in rule and all("podSelector" in peer for peer in rule[side])
            if port in [each["port"] for each in rule["ports"]]
        )

    def labels(name: str) -> dict[str, str]:
        return {"turnwright-client": "true"} if name == "client" else {"app": "turnwright", "service": name}

    own = policies.get(caller, {"policyTypes": []})
    leaves = "Egress" not in own["policyTypes"] or has(own["egress"], "to", labels(service))
    return leaves and has(policies[service]["ingress"], "from", labels(caller))


def test_network_policies_allow_the_calls_that_services_make_and_no_others() -> None:
    """A service calls those whose addresses are among its settings, and executors call each other."""
    policies = {one["metadata"]["name"]: one["spec"] for one in built("tls") if one["kind"] == "NetworkPolicy"}
    ports = {name: find(built("tls"), "Service", name)["spec"]["ports"][0]["port"] for name in SERVICES}
    called = {name: SERVICES & settings_class(name).fields.keys() for name in SERVICES}
    called["executor"] = called["executor"] | {"executor"}
    called["client"] = {"executor"}
    assert called["assembler"] == {"store"}
    for caller, wanted in called.items():
        found = {service for service, port in ports.items() if allows(policies, caller, service, port)}
        assert found == wanted, caller


@pytest.mark.parametrize("overlay", ["tls", "mesh"])
def test_each_port_says_who_may_connect(overlay) -> None:
    """A rule without `from` is open to every pod of the cluster."""
    rules = [
        (one["metadata"]["name"], rule)
        for one in built(overlay)
        if one["kind"] == "NetworkPolicy"
        for rule in one["spec"]["ingress"]
    ]
    assert len(rules) >= 2 * len(SERVICES)
    assert [(name, rule) for name, rule in rules if not all(rule.get("from") or [{}])] == []


def test_the_image_has_the_libraries_for_metrics() -> None:
    """Without them no process starts that is told to listen for Prometheus."""
    (settings,) = (one["data"] for one in built("tls") if one["kind"] == "ConfigMap")
    assert (
        settings["TURNWRIGHT_METRICS_LISTEN"].rpartition(":")[2]
        != settings["TURNWRIGHT_READY_LISTEN"].rpartition(":")[2]
    )
    assert (
        "telemetry"
        in (MANIFESTS.parent / "Containerfile").read_text().partition("/wheels/*.whl)[")[2].partition("]")[0]
    )


def test_each_service_has_a_network_policy() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in built("tls") if one["kind"] == "NetworkPolicy"}
    assert policies.keys() == SERVICES
    for name, spec in policies.items():
        assert spec["podSelector"]["matchLabels"] == {"app": "turnwright", "service": name}
    # A command can reach neither the metadata of the cloud nor private networks.
    blocks = [to["ipBlock"] for rule in policies["executor"]["egress"] for to in rule.get("to", ()) if "ipBlock" in to]
    for private in ("169.254.169.254", "10.1.2.3", "192.168.1.1", "172.20.0.1", "8.8.8.8"):
        allowed = any(reaches(block, private) for block in blocks)
        assert allowed == (private == "8.8.8.8")


def reaches(block: dict[str, Any], address: str) -> bool:
    at = ip_address(address)
    return at in ip_network(block["cidr"]) and not any(at in ip_network(one) for one in block["except"])


def test_replicas_survive_a_drain_and_follow_the_queue() -> None:
    manifests = built("tls")
    for name in ("store", "executor"):
        budget = find(manifests, "PodDisruptionBudget", name)["spec"]
        replicas = find(manifests, "Deployment", name)["spec"]["replicas"]
        assert replicas > budget["minAvailable"] >= 1
    scaler = find(manifests, "HorizontalPodAutoscaler", "executor")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "executor"
    assert scaler["minReplicas"] >= 2
    (metric,) = scaler["metrics"]
    assert metric["external"]["metric"]["name"] == "turnwright_loops_queued"


def test_in_gvisor_every_pod_is_restricted(tmp_path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "kubernetes")
    overlay = tmp_path / "kubernetes" / "overlays" / "tls" / "kustomization.yaml"
    overlay.write_text(overlay.read_text() + "components: [../../components/gvisor]\n")
    manifests = shown(overlay.parent)
    for one in manifests:
        kubernetes_validate.validate(one, "1.37", strict=True)
    specs = [one["spec"]["template"]["spec"] for one in manifests if one["kind"] == "Deployment"]
    assert all(is_restricted(spec) for spec in specs)
    executor = find(manifests, "Deployment", "executor")["spec"]["template"]["spec"]
    assert executor["runtimeClassName"] == "gvisor"
    assert executor["nodeSelector"]
    sandbox = [one["value"] for one in executor["containers"][0]["env"] if one["name"] == "TURNWRIGHT_SH_SANDBOX"]
    assert sandbox == ["limits"]
    namespace = find(manifests, "Namespace", "turnwright")["metadata"]["labels"]
    assert namespace["pod-security.kubernetes.io/enforce"] == "restricted"
