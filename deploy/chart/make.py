"""Makes the chart out of what the overlays of deploy/kubernetes give, so that there is one source of the manifests.

Values take the place of what people choose; where the overlays differ, `protection` decides which of them holds, and
`http`, `sandbox` and `mcp` where the components of these names make a difference.
`python make.py FOLDER` writes the chart `turnwright` into the folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final

import yaml

from turnwright_core import __version__

HERE: Final = Path(__file__).parent
OVERLAYS: Final = HERE.parent / "kubernetes" / "overlays"
COMPONENTS: Final = {"tls": {"http": "https", "sandbox": "sandbox", "mcp": "mcp"}, "mesh": {"http": "http"}}
"""What each overlay can have, by the value that asks for it."""
NAMESPACES: Final = {
    "turnwright": "{{ .Values.namespaces.services }}",
    "turnwright-executors": "{{ .Values.namespaces.executors }}",
}
CONFIG: Final = {"turnwright": ".Values.config.services", "turnwright-executors": ".Values.config.executors"}
IMAGE: Final = (
    "{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}"
    "{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}"
)
CLAIMS: Final = {"projects": ".Values.projects", "sandbox-projects": ".Values.sandbox.projects"}
CONDITIONS: Final = {
    "Namespace": ".Values.namespaces.create",
    "HorizontalPodAutoscaler": ".Values.autoscaling.enabled",
    **{name: f"not {of}.existingClaim" for name, of in CLAIMS.items()},
}
"""What is made only if somebody wants it, by its kind or name."""

GENERATED: Final = re.compile(r"(turnwright(?:-identity|-servers)?)-[0-9a-z]{10}")
"""The name of a map of settings, of who calls, or of servers: kustomize adds a hash of what it holds."""
IN_ADDRESS: Final = re.compile(r"(?<=\.)turnwright(?:-executors)?(?=:\d)")
"""The namespace in the address of a service."""
BARE: Final = re.compile(r"'?<<(.*?)>>'?")
"""Where Helm writes a value that is no text; `_bare` makes them."""
BLOCK: Final = re.compile(r"^( *)(\S+): '?\[\[(.*?)\]\]'?$", re.MULTILINE)
"""Where it writes one of several lines; `_block` makes them."""

Manifest = dict[str, Any]
Parts = dict[tuple[str, str, str], list[str]]
"""What each file of the chart consists of: lines, and blocks under a condition."""


def make(folder: Path) -> Path:
    """Write the chart into a folder; its own folder there."""
    chart = folder / "turnwright"
    shutil.rmtree(chart, ignore_errors=True)
    shutil.copytree(HERE, chart, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    about = (HERE / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(re.sub(r"^#.*\n", "", about, flags=re.MULTILINE).replace("0.0.0", __version__))
    (chart / "templates" / "_identity.tpl").write_text(_identities())
    tls, mesh = (_switched(overlay, list(components.items())) for overlay, components in COMPONENTS.items())
    for each, parts in _either('eq .Values.protection "tls"', tls, mesh).items():
        kind, name, namespace = each
        text = "".join(parts)
        if wanted := CONDITIONS.get(kind, CONDITIONS.get(name)):
            text = f"{{{{- if {wanted} }}}}\n{text}{{{{- end }}}}\n"
        (chart / "templates" / f"{'-'.join(filter(None, (kind.lower(), namespace, name)))}.yaml").write_text(text)
    return chart


def _identities() -> str:
    """Who calls, as the overlays say it, with the namespaces of the values, and what these add."""
    tls, mesh = ((OVERLAYS / overlay / "identity.toml").read_text() for overlay in ("tls", "mesh"))
    mesh = mesh.replace("spiffe://cluster.local/", "spiffe://{{ .Values.authorizationPolicies.trustDomain }}/")
    both = f'{{{{ if eq .Values.protection "tls" }}}}{tls}{{{{ else }}}}{mesh}{{{{ end }}}}'
    for here, value in NAMESPACES.items():
        both = both.replace(f"/ns/{here}/", f"/ns/{value}/")
    return f'{{{{- define "turnwright.identity" }}}}{both}{{{{ .Values.identity }}}}{{{{ end }}}}'


def _either(condition: str, these: Parts, those: Parts) -> Parts:
    """What holds where a condition does and where it does not, with the condition around the parts that differ."""
    return {each: list(_merged(condition, these.get(each, ()), those.get(each, ()))) for each in these | those}


def _merged(condition: str, these: Sequence[str], those: Sequence[str]) -> Iterator[str]:
    for kind, a, b, c, d in SequenceMatcher(None, these, those, autojunk=False).get_opcodes():
        here, there = "".join(these[a:b]), "".join(those[c:d])
        if kind == "equal":
            yield from these[a:b]
        elif here and there:
            yield f"{{{{- if {condition} }}}}\n{here}{{{{- else }}}}\n{there}{{{{- end }}}}\n"
        else:
            yield f"{{{{- if {condition if here else f'not ({condition})'} }}}}\n{here or there}{{{{- end }}}}\n"


def _switched(overlay: str, components: Sequence[tuple[str, str]], chosen: tuple[str, ...] = ()) -> Parts:
    """An overlay with those components, of all that it can have, that values ask for."""
    if not components:
        return _parts(overlay, chosen)
    (value, component), *others = components
    these, those = _switched(overlay, others, (*chosen, component)), _switched(overlay, others, chosen)
    return _either(f".Values.{value}.enabled", these, those)


def _parts(overlay: str, components: Sequence[str]) -> Parts:
    """Each object of an overlay with components as lines of the chart, by kind, name and namespace."""
    with tempfile.TemporaryDirectory() as folder:
        manifests = Path(os.path.relpath(OVERLAYS.parent, Path(folder).resolve()))
        own = {
            "resources": [str(manifests / "overlays" / overlay)],
            "components": [str(manifests / "components" / each) for each in components],
        }
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(own))
        shown = subprocess.run(  # noqa: S603 - words of this file
            ["kubectl", "kustomize", folder],  # noqa: S607 - as people call it
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
    found = {}
    for manifest in yaml.safe_load_all(shown.stdout):
        changed: Manifest = _renamed("", manifest)
        key = changed["kind"], changed["metadata"]["name"], changed["metadata"].get("namespace", "")
        text = yaml.safe_dump(_with_values(changed), width=10_000, sort_keys=False)
        text = BLOCK.sub(lambda at: f"{at[1]}{at[2]}: {{{{- toYaml {at[3]} | nindent {len(at[1]) + 2} }}}}", text)
        found[key] = BARE.sub(r"{{ \1 }}", text).splitlines(keepends=True)
    return found


def _renamed(key: str, value: Any) -> Any:
    """The same with what stands for the namespaces, wherever one is named but in the metadata."""
    if isinstance(value, dict):
        return {name: _renamed(name, each) for name, each in value.items()}
    if isinstance(value, list):
        return [_renamed(key, each) for each in value]
    if not isinstance(value, str):
        return value
    if generated := GENERATED.fullmatch(value):
        return generated[1]
    if key == "kubernetes.io/metadata.name":
        return NAMESPACES.get(value, value)
    return IN_ADDRESS.sub(lambda at: NAMESPACES[at[0]], value)


def _with_values(manifest: Manifest) -> Manifest:
    """The same with values in the place of what people choose."""
    about, spec = manifest["metadata"], manifest.get("spec", {})
    namespace = about.get("namespace", about["name"])
    match manifest["kind"]:
        case "ConfigMap" if "identity.toml" in manifest["data"]:
            manifest["data"]["identity.toml"] = _bare('include "turnwright.identity" . | toJson')
        case "ConfigMap" if "TURNWRIGHT_HTTP_HOSTS" in manifest["data"]:
            for name in ("hosts", "origins"):
                value = _bare(f'join "," .Values.http.{name} | quote')
                manifest["data"][f"TURNWRIGHT_HTTP_{name.upper()}"] = value
        case "Deployment":
            _deployment(about["name"], spec, CONFIG[namespace])
        case "HorizontalPodAutoscaler":
            spec["minReplicas"] = _bare(".Values.autoscaling.minReplicas")
            spec["maxReplicas"] = _bare(".Values.autoscaling.maxReplicas")
        case "PersistentVolumeClaim":
            of = CLAIMS[about["name"]]
            spec["resources"]["requests"]["storage"] = f"{{{{ {of}.size }}}}"
            # An empty class is another thing than none.
            spec["storageClassName"] = _bare(f"{of}.storageClassName | default nil | toJson")
        case "Namespace":
            about["name"] = NAMESPACES[namespace]
    if "namespace" in about:
        about["namespace"] = NAMESPACES[namespace]
    return manifest


def _deployment(service: str, spec: Manifest, config: str) -> None:
    of, pod = f".Values.{service}", spec["template"]["spec"]
    if service == "executor":
        # A number here would undo at each upgrade what the autoscaler has chosen.
        spec["replicas"] = _bare(f'.Values.autoscaling.enabled | ternary "null" {of}.replicas')
    elif service != "sandbox":
        spec["replicas"] = _bare(f"{of}.replicas")
    http = " .Values.http" if service == "executor" else ""
    annotations = spec["template"]["metadata"].setdefault("annotations", {})
    annotations["turnwright/config"] = f"{{{{ list {config} .Values.identity{http} | toJson | sha256sum }}}}"
    pod["imagePullSecrets"] = _bare('include "turnwright.pullSecrets" .')
    for container in pod["containers"]:
        name = container["name"]
        own = f"{{{{ if .Values.{name}.image }}}}{{{{ .Values.{name}.image }}}}{{{{ else }}}}{IMAGE}{{{{ end }}}}"
        container["image"] = own if name in ("mcp", "sandbox") else IMAGE
        container["imagePullPolicy"] = "{{ .Values.image.pullPolicy }}"
        container["resources"] = _block(f".Values.{name}.resources")
        # Of several that say the same the later one holds, so these change the base, and no secret.
        container.setdefault("envFrom", []).insert(1, {"configMapRef": {"name": "turnwright-own"}})
    for volume in pod["volumes"]:
        if claim := volume.get("persistentVolumeClaim"):
            name = claim["claimName"]
            claim["claimName"] = f'{{{{ {CLAIMS[name]}.existingClaim | default "{name}" }}}}'


def _bare(expression: str) -> str:
    return f"<<{expression}>>"


def _block(expression: str) -> str:
    return f"[[{expression}]]"


if __name__ == "__main__":
    make(Path(sys.argv[1]))
