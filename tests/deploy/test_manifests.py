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
from turnwright_executor.domain.tool_servers import servers_in
from turnwright_kit.identity.identity_file import read_identity_file
from turnwright_mcp.config import McpSettings
from turnwright_sandbox.config import SandboxSettings

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


NAMESPACES = {
    "executor": "turnwright-executors",
    "sandbox": "turnwright-executors",
    "client": "elsewhere",
} | dict.fromkeys(("store", "assembler", "provider"), "turnwright")


def policies_of(overlay: str) -> dict[str, Any]:
    """The policies of the services, by service."""
    return {
        one["metadata"]["name"]: one["spec"]
        for one in built(overlay)
        if one["kind"] == "NetworkPolicy" and one["spec"]["podSelector"]
    }


def allows(policies: dict[str, Any], caller: str, service: str, port: int) -> bool:
    """Whether a pod may connect to a service: out of its own policy, and into that one's."""

    def names(peer: dict[str, Any], pod: str, own: str) -> bool:
        if "podSelector" not in peer:
            return False
        space = {"kubernetes.io/metadata.name": NAMESPACES[pod]} | (CLIENT if pod == "client" else {})
        wanted = peer.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACES[own]}})
        labels = CLIENT if pod == "client" else {"app": "turnwright", "service": pod}
        fits = (
            space.items() >= wanted["matchLabels"].items(),
            labels.items() >= peer["podSelector"]["matchLabels"].items(),
        )
        return all(fits)

    def has(rules: list[dict[str, Any]], side: str, pod: str, own: str) -> bool:
        return any(
            any(names(peer, pod, own) for peer in rule[side])
            for rule in rules
            if port in [each["port"] for each in rule["ports"]]
        )

    leaves = caller == "client" or has(policies[caller]["egress"], "to", service, caller)
    return leaves and has(policies[service]["ingress"], "from", caller, service)


CLIENT = {"turnwright-client": "true"}


def test_network_policies_allow_the_calls_that_services_make_and_no_others() -> None:
    """A service calls those whose addresses are among its settings, and executors call each other."""
    policies = policies_of("tls")
    ports = {name: find(built("tls"), "Service", name)["spec"]["ports"][0]["port"] for name in SERVICES}
    called = {name: SERVICES & settings_class(name).fields.keys() for name in SERVICES}
    called["executor"] = called["executor"] | {"executor"}
    called["client"] = {"executor"}
    assert called["assembler"] == {"store"}
    for caller, wanted in called.items():
        found = {service for service, port in ports.items() if allows(policies, caller, service, port)}
        assert found == wanted, caller


@pytest.mark.parametrize("overlay", ["tls", "mesh"])
def test_each_rule_says_who_may_connect_and_where(overlay) -> None:
    """A rule without `from` is open to every pod of the cluster, one without `to` or a port lets everything out."""
    rules = [
        (one["metadata"]["name"], rule)
        for one in built(overlay)
        if one["kind"] == "NetworkPolicy"
        for side in ("ingress", "egress")
        for rule in one["spec"].get(side, ())
    ]
    assert len(rules) >= 4 * len(SERVICES)
    assert [(name, rule) for name, rule in rules if not all(rule.get("from") or rule.get("to") or [{}])] == []
    assert [(name, rule) for name, rule in rules if not rule.get("ports")] == []


def test_the_image_has_the_libraries_for_metrics() -> None:
    """Without them no process starts that is told to listen for Prometheus."""
    maps = [one["data"] for one in built("tls") if one["kind"] == "ConfigMap"]
    both = [one for one in maps if "identity.toml" not in one]
    assert len(both) == len(set(NAMESPACES.values()) - {"elsewhere"})
    for settings in both:
        ports = [settings[f"TURNWRIGHT_{name}_LISTEN"].rpartition(":")[2] for name in ("METRICS", "READY")]
        assert ports[0] != ports[1]
    assert (
        "telemetry"
        in (MANIFESTS.parent / "Containerfile").read_text().partition("/wheels/turnwright-*.whl)[")[2].partition("]")[0]
    )


@pytest.mark.parametrize("overlay", ["tls", "mesh"])
def test_what_no_policy_allows_is_denied(overlay) -> None:
    everything = [
        one["metadata"]["namespace"]
        for one in built(overlay)
        if one["kind"] == "NetworkPolicy" and one["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    ]
    assert sorted(everything) == ["turnwright", "turnwright-executors"]
    policies = policies_of(overlay)
    assert policies.keys() == SERVICES
    for name, spec in policies.items():
        assert spec["podSelector"]["matchLabels"] == {"app": "turnwright", "service": name}
        assert spec["policyTypes"] == ["Ingress", "Egress"]


def test_what_leaves_a_pod_goes_where_it_must() -> None:
    for name, spec in policies_of("tls").items():
        # Names are asked of the cluster's own server: one elsewhere could be told secrets.
        for port, space in ((53, "kube-system"), (4317, "monitoring")):
            peers = [to for rule in spec["egress"] if {"port": port} in rule["ports"] for to in rule["to"]]
            assert [to["namespaceSelector"]["matchLabels"] for to in peers] == [{"kubernetes.io/metadata.name": space}]
        blocks = [
            (to["ipBlock"], {each["port"] for each in rule["ports"]})
            for rule in spec["egress"]
            for to in rule["to"]
            if "ipBlock" in to
        ]
        ports = {"store": {5432}, "provider": {443}, "executor": {80, 443}, "assembler": set()}[name]
        assert set().union(*(open_ for _, open_ in blocks)) == ports
        if name == "store":
            continue  # its database may be anywhere
        # Neither the metadata of the cloud nor private networks, nor these by NAT64.
        private = ("169.254.169.254", "10.1.2.3", "192.168.1.1", "172.20.0.1", "64:ff9b::a01:203", "fd00::1", "fe80::1")
        for address in (*private, "8.8.8.8", "2001:4860:4860::8888"):
            allowed = any(reaches(block, address) for block, _ in blocks)
            assert allowed == (address not in private and bool(ports)), address


@pytest.mark.parametrize("overlay", ["tls", "mesh"])
def test_each_service_is_somebody_of_its_own(overlay) -> None:
    """A service account each, by which a mesh names it, with no right in the cluster; and a certificate each."""
    manifests = built(overlay)
    for name in SERVICES:
        account = find(manifests, "ServiceAccount", name)
        deployment = find(manifests, "Deployment", name)
        spec = deployment["spec"]["template"]["spec"]
        assert account["metadata"]["namespace"] == deployment["metadata"]["namespace"] == NAMESPACES[name]
        assert (account["automountServiceAccountToken"], spec["serviceAccountName"]) == (False, name)
        certificates = [one["secret"]["secretName"] for one in spec["volumes"] if one["name"] == "tls"]
        assert certificates == ([f"{name}-tls"] if overlay == "tls" else [])
    assert not [one for one in manifests if one["kind"].endswith("RoleBinding")]


@pytest.mark.parametrize("overlay", ["tls", "mesh"])
def test_commands_run_in_a_namespace_of_their_own(overlay) -> None:
    manifests = built(overlay)
    where = {one["metadata"]["name"]: one["metadata"]["namespace"] for one in manifests if one["kind"] == "Deployment"}
    assert where == {name: NAMESPACES[name] for name in SERVICES}
    enforced = {
        one["metadata"]["name"]: one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for one in manifests
        if one["kind"] == "Namespace"
    }
    assert enforced == {"turnwright": "restricted", "turnwright-executors": "privileged"}


def test_the_store_reads_its_secret_from_a_file() -> None:
    spec = find(built("tls"), "Deployment", "store")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert "turnwright-token" not in [one["secretRef"]["name"] for one in container["envFrom"] if "secretRef" in one]
    assert "TURNWRIGHT_TOKEN" not in [one["name"] for one in container["env"]]
    (volume,) = (one["secret"] for one in spec["volumes"] if one["name"] == "token")
    # Whoever is neither its owner nor of its group must not read it: the store would refuse to start.
    assert volume["defaultMode"] == 0o440
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "token")
    assert (mount["mountPath"], mount["subPath"], mount["readOnly"]) == ("/var/lib/turnwright/token", "token", True)


@pytest.mark.parametrize("overlay", ["tls", "mesh"])
def test_no_image_is_whatever_is_latest(overlay) -> None:
    images = [
        container["image"]
        for one in built(overlay)
        if one["kind"] == "Deployment"
        for container in one["spec"]["template"]["spec"]["containers"]
    ]
    assert len(images) == len(SERVICES)
    assert not [image for image in images if image.endswith(":latest") or ":" not in image]


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


@pytest.mark.parametrize(("overlay", "component"), [("tls", "https"), ("mesh", "http")])
def test_with_the_component_clients_reach_http_and_nobody_else(tmp_path, overlay, component) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "kubernetes")
    file = tmp_path / "kubernetes" / "overlays" / overlay / "kustomization.yaml"
    file.write_text(f"{file.read_text()}components: [../../components/{component}]\n")
    manifests = shown(file.parent)
    for one in manifests:
        kubernetes_validate.validate(one, "1.37", strict=True)
    (port,) = (one for one in find(manifests, "Service", "executor")["spec"]["ports"] if one["name"] == "http")
    assert (port["port"], port["appProtocol"]) == (7444, component)
    spec = find(manifests, "NetworkPolicy", "executor")["spec"]
    callers = [rule["from"] for rule in spec["ingress"] if {"port": 7444} in rule["ports"]]
    assert callers == [[{"namespaceSelector": {"matchLabels": CLIENT}, "podSelector": {"matchLabels": CLIENT}}]]
    pod = find(manifests, "Deployment", "executor")["spec"]["template"]["spec"]
    plain = find(built(overlay), "Deployment", "executor")["spec"]["template"]["spec"]
    assert pod["containers"][0]["readinessProbe"] == plain["containers"][0]["readinessProbe"]


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
    for one in manifests:
        if one["kind"] == "Namespace":
            assert one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_a_sandbox_host_has_nothing_of_the_deployment_and_executors_alone_call_it(tmp_path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "kubernetes")
    overlay = tmp_path / "kubernetes" / "overlays" / "mine" / "kustomization.yaml"
    overlay.parent.mkdir()
    overlay.write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../tls]\n"
        "components: [../../components/sandbox]\nimages: [{name: turnwright, newTag: 0.1.0}]\n"
    )
    manifests = shown(overlay.parent)
    for one in manifests:
        kubernetes_validate.validate(one, "1.37", strict=True)
    spec = find(manifests, "Deployment", "sandbox")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    secrets = {each["valueFrom"]["secretKeyRef"]["name"] for each in container["env"] if "valueFrom" in each}
    assert (secrets, "envFrom" in container) == ({"turnwright-sandbox"}, False)
    assert {each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each} == {"sandbox-tls"}
    given = {each["name"]: each.get("value", "t" * 32) for each in container["env"]}
    settings = {name.removeprefix("TURNWRIGHT_").lower(): value for name, value in given.items() if "_TLS_" not in name}
    assert SandboxSettings(**settings).sandbox_root == "/projects"
    policies = {each["metadata"]["name"]: each["spec"] for each in manifests
                if each["kind"] == "NetworkPolicy" and each["spec"]["podSelector"]}  # fmt: skip
    callers = {caller for caller in NAMESPACES if caller != "sandbox" and allows(policies, caller, "sandbox", 7446)}
    ports = {name: find(manifests, "Service", name)["spec"]["ports"][0]["port"] for name in SERVICES}
    called = {service for service, port in ports.items() if allows(policies, "sandbox", service, port)}
    assert (callers, called) == ({"executor"}, set())
    (file,) = (each["data"]["servers.toml"] for each in manifests if "servers.toml" in each.get("data", {}))
    (server,) = servers_in(file).servers
    assert (server.workspaces, server.host) == (True, "sandbox.turnwright-executors")


def test_what_calls_mcp_servers_is_beside_each_executor_and_has_their_secrets_alone(tmp_path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "kubernetes")
    overlay = tmp_path / "kubernetes" / "overlays" / "mine" / "kustomization.yaml"
    overlay.parent.mkdir()
    overlay.write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../tls]\n"
        "components: [../../components/mcp]\nimages: [{name: turnwright, newTag: 0.1.0}]\n"
    )
    manifests = shown(overlay.parent)
    for one in manifests:
        kubernetes_validate.validate(one, "1.37", strict=True)
    spec = find(manifests, "Deployment", "executor")["spec"]["template"]["spec"]
    executor, bridge = spec["containers"]
    given = {each["name"]: each["value"] for each in bridge["env"]}
    settings = {name.removeprefix("TURNWRIGHT_").lower(): value for name, value in given.items() if "_TLS_" not in name}
    made = McpSettings(**settings)
    called = {each["name"]: each.get("value", "") for each in executor["env"]}
    assert called["TURNWRIGHT_MCP"] == made.listen
    assert "mcp=certificate" in called["TURNWRIGHT_PEER_TOKENS"]
    assert made.peer_token("store") == "certificate"
    # Nothing of the deployment: neither its secret nor a key, and nothing that the executor has of its own.
    mounted = {each["name"] for each in bridge["volumeMounts"]}
    secrets = {each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each and each["name"] in mounted}
    assert (secrets, "envFrom" in bridge) == ({"turnwright-mcp", "executor-tls"}, False)
    assert {"mcp-home", "mcp-secrets"}.isdisjoint(each["name"] for each in executor["volumeMounts"])
    (store,) = find(manifests, "Service", "store")["spec"]["ports"]
    assert made.store == f"dns:///store.turnwright:{store['port']}"


def test_the_containers_of_the_compose_file_for_mcp_agree_on_where_they_are() -> None:
    services = yaml.safe_load((MANIFESTS.parent / "compose.mcp.yaml").read_text())["services"]
    one, bridge = services["turnwright"], services["mcp"]
    given = {name.removeprefix("TURNWRIGHT_").lower(): text for name, text in bridge["environment"].items()}
    made = McpSettings(**{name: text for name, text in given.items() if not text.startswith("${")})
    assert one["environment"]["TURNWRIGHT_MCP"] == f"mcp:{made.listen.rpartition(':')[2]}"
    assert f"store=0.0.0.0:{made.store.partition(':')[2]}" in one["command"]
    assert made.store.partition(":")[0] == "turnwright"
    assert set(one["volumes"]) & set(bridge["volumes"]) == {"${TURNWRIGHT_PROJECTS:-./projects}:/projects"}


def environment(overlay: str, service: str) -> tuple[dict[str, str], set[str]]:
    """The variables of a service as far as the manifests have them, and the secrets that it reads."""
    manifests = built(overlay)
    spec = find(manifests, "Deployment", service)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    named = {one["configMapRef"]["name"] for one in container["envFrom"] if "configMapRef" in one}
    maps = [one["data"] for one in manifests if one["kind"] == "ConfigMap" and one["metadata"]["name"] in named
            and one["metadata"]["namespace"] == NAMESPACES[service]]  # fmt: skip
    values = {name: value for each in maps for name, value in each.items()}
    values |= {one["name"]: one["value"] for one in container["env"] if "value" in one}
    secrets = {one["secretRef"]["name"] for one in container["envFrom"] if "secretRef" in one}
    secrets |= {one["valueFrom"]["secretKeyRef"]["name"] for one in container["env"]
                if "secretKeyRef" in one.get("valueFrom", {})}  # fmt: skip
    return values, secrets | {one["secret"]["secretName"] for one in spec["volumes"] if "secret" in one}


@pytest.mark.parametrize("overlay", ["tls", "mesh"])
def test_the_store_alone_has_the_secret_and_each_service_calls_as_itself(overlay) -> None:
    read = {name: environment(overlay, name) for name in SERVICES}
    assert {name for name, (_, secrets) in read.items() if "turnwright-token" in secrets} == {"store"}
    assert "turnwright-key" in read["executor"][1]
    for name, (values, _) in read.items():
        called = SERVICES & settings_class(name).fields.keys()
        peers = dict(pair.split("=") for pair in values["TURNWRIGHT_PEER_TOKENS"].split(",")) if called else {}
        assert peers == dict.fromkeys(called, "certificate"), name


@pytest.mark.parametrize("overlay", ["tls", "mesh"])
def test_whoever_is_called_knows_who_calls(overlay) -> None:
    file = MANIFESTS / "overlays" / overlay / "identity.toml"
    found = read_identity_file(file, is_needed=True)
    domain = {"tls": "turnwright", "mesh": "cluster.local"}[overlay]
    callers = {name for name in SERVICES if SERVICES & settings_class(name).fields.keys()}
    assert {(peer.uri, peer.principal, peer.kind.value) for peer in found.peer} == {
        (f"spiffe://{domain}/ns/{NAMESPACES[name]}/sa/{name}", name, "service") for name in callers
    }
    for name in SERVICES:
        spec = find(built(overlay), "Deployment", name)["spec"]["template"]["spec"]
        maps = [one["configMap"]["name"] for one in spec["volumes"] if one["name"] == "identity"]
        # A command of a model could connect as a sidecar does.
        assert bool(maps) == (overlay == "tls" or name != "executor"), name
        for each in maps:
            (mounted,) = (one for one in built(overlay) if one["metadata"]["name"] == each
                          and one["metadata"]["namespace"] == NAMESPACES[name])  # fmt: skip
            assert mounted["data"] == {"identity.toml": file.read_text()}
            (mount,) = (one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "identity")
            named = environment(overlay, name)[0]["TURNWRIGHT_IDENTITY"]
            assert named == f"{mount['mountPath']}/identity.toml"
    assert [bool(proxy.address) for proxy in found.proxy] == [overlay == "mesh"]
