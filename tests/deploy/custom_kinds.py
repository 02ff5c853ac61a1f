"""The kinds of others that the chart makes, as far as it uses them: fields and their forms by the definitions of the named releases.

A field that these do not have is an error, as at a server that validates strictly.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

_NAME: Final[Schema] = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253}
_PORT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 65535}
_HOSTNAME: Final[Schema] = {
    "type": "string", "minLength": 1, "maxLength": 253,
    "pattern": r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
}  # fmt: skip
_GATEWAY_DURATION: Final[Schema] = {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
_LABELS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def _list(of: Schema, most: int = 100, least: int = 0) -> Schema:
    return {"type": "array", "items": of, "minItems": least, "maxItems": most}


def _kind(version: str, kind: str, spec: Schema) -> Schema:
    metadata = _object("name", "namespace", name=_NAME, namespace=_NAME, labels=_LABELS)
    fields = {"apiVersion": {"const": version}, "kind": {"const": kind}, "metadata": metadata, "spec": spec}
    return _object(*fields, **fields)


_PARENT: Final = _object(
    "name", group={"type": "string"}, kind={"type": "string"}, name=_NAME, namespace=_NAME, port=_PORT,
    sectionName=_NAME,
)  # fmt: skip
_BACKEND: Final = _object(
    "name", "port", group={"type": "string"}, kind={"type": "string"}, name=_NAME, namespace=_NAME, port=_PORT,
    weight={"type": "integer", "minimum": 0, "maximum": 1_000_000},
)  # fmt: skip


def _route(**more: Schema) -> Schema:
    rule = _object(backendRefs=_list(_BACKEND, most=16), **more)
    return _object(
        parentRefs=_list(_PARENT, most=32), hostnames=_list(_HOSTNAME, most=16), rules=_list(rule, most=16, least=1)
    )


_STRINGS: Final = _list({"type": "string", "minLength": 1}, least=1)
_SOURCE: Final = _object(principals=_STRINGS, namespaces=_STRINGS, ipBlocks=_STRINGS)
_OPERATION: Final = _object(ports=_list({"type": "string", "pattern": "^[0-9]+$"}, least=1), paths=_STRINGS)
_DURATION: Final[Schema] = {
    "type": "string",
    "pattern": r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}

KINDS: Final[dict[str, Schema]] = {
    # Gateway API 1.2, the standard channel: the first with timeouts in it.
    "GRPCRoute": _kind("gateway.networking.k8s.io/v1", "GRPCRoute", _route()),
    "HTTPRoute": _kind(
        "gateway.networking.k8s.io/v1", "HTTPRoute",
        _route(timeouts=_object(request=_GATEWAY_DURATION, backendRequest=_GATEWAY_DURATION)),
    ),
    # Prometheus operator 0.80.
    "PodMonitor": _kind(
        "monitoring.coreos.com/v1", "PodMonitor",
        _object(
            "selector", "podMetricsEndpoints",
            selector=_object(matchLabels=_LABELS),
            podMetricsEndpoints=_list(_object("port", port={"type": "string"}, interval=_DURATION)),
        ),
    ),
    # Istio 1.22: the first with `v1`. A list of principals that is empty would be anybody.
    "AuthorizationPolicy": _kind(
        "security.istio.io/v1", "AuthorizationPolicy",
        _object(
            selector=_object(matchLabels=_LABELS),
            action={"enum": ["ALLOW", "DENY", "AUDIT", "CUSTOM"]},
            rules=_list(
                _object(
                    **{
                        "from": _list(_object("source", source=_SOURCE), most=512, least=1),
                        "to": _list(_object("operation", operation=_OPERATION), least=1),
                    }
                ),
                most=512,
            ),
        ),
    ),
}  # fmt: skip
