#!/usr/bin/env python3
"""chart_goldens.py HELM [--write]: compares what the chart renders with tests/stack/kube/goldens; --write makes those files anew.

goldens/least.yaml has every object that the values in charts/atoll/ci/least.yaml make. For each other set of values a
file has the differences from it: `+` is only in that set, `-` only in least. A text that is a file of the repository
is shown as `(PATH)`.
"""
import difflib
import json
import pathlib
import sys

import yaml

from chart_policies import ROOT, render, sets

GOLDENS = ROOT / "tests/stack/kube/goldens"
BASE = "least"
COPIED = ["charts/atoll/files.conf", "charts/atoll/renew_token.sh",
          *(str(one.relative_to(ROOT)) for one in sorted((ROOT / "compose/observe/dashboards").iterdir()))]
ALERTS = "compose/observe/alerts.yaml"


class Dumper(yaml.SafeDumper):
    """Texts of several lines are shown as they are."""


Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar(
    "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None))


def shorten(node, files):
    """The node with `(PATH)` in place of each text that is a file."""
    if isinstance(node, dict):
        return {key: shorten(value, files) for key, value in node.items()}
    if isinstance(node, list):
        return [shorten(value, files) for value in node]
    return files.get(node.strip(), node) if isinstance(node, str) else node


def objects_of(helm, values):
    """The objects of one set of values by kind and name; exits where they cannot be rendered."""
    rendered = render(helm, ROOT / "charts/atoll", values)
    if isinstance(rendered, str):
        sys.exit(f"{values.name}: {rendered}")
    files = {(ROOT / path).read_text().strip(): f"({path})" for path in COPIED}
    alerts = yaml.safe_load((ROOT / ALERTS).read_text())
    objects = {}
    for one in rendered.objects:
        if one.get("spec") == alerts:
            one["spec"] = f"({ALERTS})"
        objects[f"{one['kind']} {one['metadata']['name']}"] = shorten(one, files)
    return dict(sorted(objects.items()))


def lines_of(path, node):
    """A line `path: value` for each leaf; elements of a list by their name where they have one."""
    if isinstance(node, dict) and node:
        for key, value in sorted(node.items()):
            yield from lines_of(f"{path}.{key}" if path else key, value)
    elif isinstance(node, list) and any(isinstance(one, dict) or "\n" in str(one) for one in node):
        names = [one.get("name") if isinstance(one, dict) else None for one in node]
        named = len({*names} - {None}) == len(node)
        for i, value in enumerate(node):
            yield from lines_of(f"{path}[{names[i] if named else i}]", value)
    elif isinstance(node, str) and "\n" in node:
        for line in node.splitlines():
            yield f"{path} | {line}"
    else:
        yield f"{path}: {json.dumps(node)}"


def differences(base, objects):
    """What a set of values has that the base has not, and the other way round, object by object."""
    for name in sorted({*base, *objects}):
        old, new = (list(lines_of("", one.get(name, {}))) if name in one else [] for one in (base, objects))
        changed = [line for line in difflib.unified_diff(old, new, n=0, lineterm="") if not line.startswith(("---", "+++", "@@"))]
        if changed:
            yield name
            yield from (f"  {line[0]} {line[1:]}" for line in changed)


def goldens(helm):
    """(file, text) for each set of values."""
    values = {one.stem: one for one in sets()}
    base = objects_of(helm, values.pop(BASE))
    yield GOLDENS / f"{BASE}.yaml", yaml.dump_all(base.values(), Dumper=Dumper, default_flow_style=None, width=140)
    for name, one in values.items():
        text = "\n".join(differences(base, objects_of(helm, one)))
        yield GOLDENS / f"{name}.txt", f"# What charts/atoll/ci/{name}.yaml changes in {BASE}.yaml.\n{text}\n"


def main(helm, *options):
    wanted = dict(goldens(helm))
    if "--write" in options:
        for path in GOLDENS.glob("*"):
            path.unlink()
        for path, text in wanted.items():
            path.write_text(text)
        return 0
    status = 0
    for path in sorted({*wanted, *GOLDENS.glob("*")}):
        old, new = path.read_text() if path.exists() else "", wanted.get(path, "")
        if old != new:
            status = 1
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"{path.relative_to(ROOT)}", "rendered"))
    if status:
        print(f"if this is meant: {pathlib.Path(__file__).resolve().relative_to(ROOT)} {helm} --write")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
