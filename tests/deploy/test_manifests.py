"""The Kubernetes manifests: they build, the API would accept them, and they keep what the run book promises."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"
SERVICES = {"store", "assembler", "provider", "executor"}

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl builds the manifests; it is not installed")


def built(overlay: str) -> list[dict[str, Any]]:
    command = ["kubectl", "kustomize", str(MANIFESTS / "overlays" / overlay)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return list(yaml.safe_load_all(shown.stdout))


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
        assert {"readinessProbe", "startupProbe", "lifecycle"} <= container.keys()
        assert spec["terminationGracePeriodSeconds"] > 20


def test_services_listen_with_tls_or_say_that_a_mesh_protects_them() -> None:
    for overlay, wanted in (("tls", "TURNWRIGHT_TLS_CERT"), ("mesh", "TURNWRIGHT_INSECURE")):
        for one in built(overlay):
            if one["kind"] == "Deployment":
                (container,) = one["spec"]["template"]["spec"]["containers"]
                assert wanted in {variable["name"] for variable in container["env"]}


def test_each_service_has_a_network_policy() -> None:
    policies = {one["metadata"]["name"] for one in built("tls") if one["kind"] == "NetworkPolicy"}
    assert policies == SERVICES
