#!/usr/bin/env python3
"""schemas.py OUT KUBERNETES PROMETHEUS_OPERATOR: strict JSON schemas for kubeconform, OUT/kind-group-version.json.

KUBERNETES is the Go module k8s.io/kubernetes, which carries the description of its API, and PROMETHEUS_OPERATOR the
module of that name with its custom resources. A property that they do not name is refused.
"""
import json
import pathlib
import sys

import yaml

PREFIX = "#/definitions/"


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(PREFIX)
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def close(node):
    """Refuses what is not named, where properties are named at all."""
    if isinstance(node, dict):
        if "properties" in node and not node.get("x-kubernetes-preserve-unknown-fields"):
            node.setdefault("additionalProperties", False)
        if node.pop("x-kubernetes-int-or-string", False):
            node.clear()
            node["type"] = ["string", "integer"]
        for value in node.values():
            close(value)
    elif isinstance(node, list):
        for value in node:
            close(value)


def write(out, group, version, kind, schema):
    stem = "-".join(part for part in (kind.lower(), group.split(".")[0], version.lower()) if part)
    schema["properties"] = schema["properties"] | {
        "apiVersion": {"enum": ["/".join(part for part in (group, version) if part)]},
        "kind": {"enum": [kind]},
    }
    schema["required"] = sorted(set(schema.get("required", [])) | {"apiVersion", "kind"})
    (out / f"{stem}.json").write_text(json.dumps(schema))


def main(out, kubernetes, operator):
    out.mkdir(parents=True)
    definitions = json.loads((kubernetes / "api/openapi-spec/swagger.json").read_text())["definitions"]
    for name, schema in definitions.items():
        if name.endswith("util.intstr.IntOrString"):
            definitions[name] = {"type": ["string", "integer"]}
        elif name.endswith("api.resource.Quantity"):
            definitions[name] = {"type": ["string", "number"]}
        else:
            close(schema)
    for name, schema in definitions.items():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            if "properties" not in schema:
                continue
            needed, todo = {}, [name]
            while todo:
                one = todo.pop()
                if one not in needed:
                    needed[one] = definitions[one]
                    todo.extend(references(definitions[one]))
            write(out, kind["group"], kind["version"], kind["kind"], schema | {"definitions": needed})
    metadata = definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]
    for name in ("servicemonitors", "prometheusrules"):
        path = operator / f"example/prometheus-operator-crd/monitoring.coreos.com_{name}.yaml"
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            close(schema)
            schema["properties"]["metadata"] = {"type": "object", "additionalProperties": False,
                                                "properties": {key: {} for key in metadata["properties"]}}
            write(out, spec["group"], version["name"], spec["names"]["kind"], schema)


if __name__ == "__main__":
    main(*(pathlib.Path(argument) for argument in sys.argv[1:4]))
