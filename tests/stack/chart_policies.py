#!/usr/bin/env python3
"""chart_policies.py HELM [--proved]: what the chart promises of every object that it renders, with each set of values in
charts/atoll/ci. --proved also takes each line out by which a promise is kept, and demands that its check fails then.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVICES = ["registry", "store", "dispatch", "aggregation"]
COMPONENT = "app.kubernetes.io/component"
MIB = 1 << 20


class Rendered:
    """The objects that one set of values makes, and the values with the chart's own below them."""

    def __init__(self, objects, values):
        self.objects, self.values = objects, values

    def kind(self, kind):
        return [one for one in self.objects if one["kind"] == kind]

    def named(self, kind, end):
        return next((one for one in self.kind(kind) if one["metadata"]["name"].endswith(end)), None)

    def deployments(self):
        return {component_of(one): one for one in self.kind("Deployment")}

    def pods(self):
        """(name, pod) of all."""
        pods = {name: one["spec"]["template"]["spec"] for name, one in self.deployments().items()}
        pods |= {component_of(one): one["spec"] for one in self.kind("Pod")}
        return (pods | {component_of(one): job_pod(one) for one in self.kind("CronJob")}).items()

    def containers(self, pods=None):
        for name, pod in self.pods() if pods is None else pods:
            for container in pod["containers"]:
                yield f"{name}/{container['name']}", pod, container

    def of_deployments(self):
        return self.containers((name, one["spec"]["template"]["spec"]) for name, one in self.deployments().items())

    def settings(self, service):
        return yaml.safe_load(self.named("ConfigMap", "-atoll")["data"][f"{service}.yaml"])

    def files_conf(self):
        """The settings of the nginx before the store, without comments."""
        lines = self.named("ConfigMap", "-atoll")["data"]["files.conf"].splitlines()
        return [line.split("#")[0].strip() for line in lines]


def component_of(one):
    return one["metadata"]["labels"][COMPONENT]


def job_pod(cron_job):
    return cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def context(of):
    return of.get("securityContext") or {}


# Each check yields what is wrong. ---------------------------------------------------------------------------------------


def restricted(chart):
    for name, pod, container in chart.containers():
        if context(pod).get("runAsNonRoot") is not True:
            yield f"{name} may run as root"
        if (context(pod).get("seccompProfile") or {}).get("type") != "RuntimeDefault":
            yield f"{name} has no seccomp profile"
        if context(container).get("allowPrivilegeEscalation") is not False:
            yield f"{name} may gain privileges"
        if (context(container).get("capabilities") or {}).get("drop") != ["ALL"]:
            yield f"{name} keeps capabilities"
        if set(context(container)) - {"allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"}:
            yield f"{name} has more rights: {context(container)}"


def read_only(chart):
    for name, _, container in chart.containers():
        if context(container).get("readOnlyRootFilesystem") is not True:
            yield f"{name} can write its root"


def user(chart):
    for name, pod, _ in chart.containers():
        for key in ("runAsUser", "runAsGroup", "fsGroup"):
            if context(pod).get(key) != chart.values["image"]["uid"]:
                yield f"{name}: {key} is {context(pod).get(key)}"


def volumes_not_walked(chart):
    for name, pod, _ in chart.containers():
        if context(pod).get("fsGroupChangePolicy") != "OnRootMismatch":
            yield f"{name} changes the group of each file at its start"


def no_api_token(chart):
    for name, pod in chart.pods():
        if pod.get("automountServiceAccountToken") is not False:
            yield f"{name} has a token for the API server"
        named = "serviceAccountName" in pod or "serviceAccountToken" in json.dumps(pod.get("volumes"))
        if named and name != "renewal":
            yield f"{name} has an account at the API server"
    for account in chart.kind("ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            yield f"whatever runs as {account['metadata']['name']} has a token for the API server"


def no_service_links(chart):
    for name, pod in chart.pods():
        if pod.get("enableServiceLinks") is not False:
            yield f"{name} gets a variable for each service of the namespace"


def probes(chart):
    for name, _, container in chart.of_deployments():
        service = name.split("/")[0] in SERVICES
        for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"),
                            ("readinessProbe", "/readyz" if service else "/healthz")):
            if (container["name"], probe) == ("files", "livenessProbe"):
                if not (container.get(probe) or {}).get("tcpSocket"):
                    yield f"{name} has no {probe}"
                continue  # nginx is not started again where the store is away
            asked = (container.get(probe) or {}).get("httpGet") or {}
            if asked.get("path") != path:
                yield f"{name} has no {probe} at {path}"
            if asked.get("scheme", "HTTP") != ("HTTPS" if container["name"] == "public" else "HTTP"):
                yield f"{name}: {probe} speaks {asked.get('scheme')}"
        startup = container.get("startupProbe") or {}
        if startup.get("periodSeconds", 0) * startup.get("failureThreshold", 0) < 120:
            yield f"{name} is restarted while it waits a minute for the database"


def resources(chart):
    for name, _, container in chart.containers():
        given = container.get("resources") or {}
        if not {"cpu", "memory"} <= set(given.get("requests", {})) or "memory" not in given.get("limits", {}):
            yield f"{name} has no requests or no limit: {given}"


def drained_one_by_one(chart):
    budgets = {component_of(one): one["spec"] for one in chart.kind("PodDisruptionBudget")}
    for name, deployment in chart.deployments().items():
        budget = budgets.get(name, {})
        if budget.get("maxUnavailable") != 1 or "minAvailable" in budget:
            yield f"{name} has no budget of one pod at a time"
        elif budget["selector"] != deployment["spec"]["selector"]:
            yield f"the budget of {name} is for other pods"


def replaced_without_a_gap(chart):
    for name, deployment in chart.deployments().items():
        strategy = deployment["spec"].get("strategy") or {}
        if name == "store":
            if strategy != {"type": "Recreate"} or deployment["spec"]["replicas"] != 1:
                yield "two stores may write one volume"
        elif strategy.get("rollingUpdate") != {"maxSurge": 1, "maxUnavailable": 0}:
            yield f"{name} is away while it is replaced: {strategy}"
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            last = json.dumps(container.get("lifecycle"))
            is_nginx = container["name"] in ("gateway", "public", "files")
            if "sleep" not in last or is_nginx != ("kill -QUIT 1" in last):
                yield f"{name}/{container['name']} ends while it is still asked"


def requests_wait(chart):
    for name, _, container in chart.of_deployments():
        if name.startswith("gateway/") and "--wait=60" not in container["command"]:
            yield f"{name} keeps no request for a service that is replaced"


def own_limits(chart):
    """Where something stands before the gateway, each client's address is the one that it names."""
    trusted = chart.values["gateway"]["trustedProxies"]
    if chart.kind("Ingress") and not trusted:
        yield "all clients behind the ingress share one address"
    for name, _, container in chart.of_deployments():
        given = [one for one in container["command"] if one.startswith("--trusted-proxies=")]
        if name.startswith("gateway/") and given != ([f"--trusted-proxies={','.join(trusted)}"] if trusted else []):
            yield f"{name} believes other proxies: {given}"


def settings_restart(chart):
    for name, deployment in chart.deployments().items():
        if name in SERVICES and "checksum/config" not in deployment["spec"]["template"]["metadata"]["annotations"]:
            yield f"{name} goes on with old settings"


def only_its_keys(chart):
    wanted = {"dispatch": {"public.pem", "private.pem"}, "aggregation": {"public.pem", "aggregation.token"}}
    for name in SERVICES:
        pod = chart.deployments()[name]["spec"]["template"]["spec"]
        volumes = {one["name"]: one for one in pod["volumes"]}
        keys = {item["key"] for item in volumes["keys"]["secret"].get("items") or [{"key": "all"}]}
        if keys != wanted.get(name, {"public.pem"}):
            yield f"{name} sees {keys}"
        if ("ssh" in volumes) != (name == "dispatch" and chart.values["ssh"]["existingSecret"] != ""):
            yield f"{name}: ssh keys"
        for one in volumes.values():
            if "secret" in one and one["secret"].get("defaultMode") != 0o440:
                yield f"{name}: others can read {one['name']}"


def token_renewed(chart):
    """The job, its account and what that may do."""
    asked, secret = chart.values["credentials"]["renewal"]["enabled"], chart.values["credentials"]["existingSecret"]
    kinds = ("CronJob", "ServiceAccount", "Role", "RoleBinding")
    count = {kind: len(chart.kind(kind)) for kind in (*kinds, "ClusterRole", "ClusterRoleBinding")}
    if count != {kind: int(asked and kind in kinds) for kind in count}:
        yield f"renewal is {'on' if asked else 'off'}, and there are {count}"
        return
    if not asked:
        return
    job, account, role, binding = (chart.kind(kind)[0] for kind in kinds)
    wanted = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get", "patch"]}
    if role["rules"] != [wanted]:
        yield f"it may do other things than get and patch {secret}: {role['rules']}"
    name, pod = account["metadata"]["name"], job_pod(job)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "atoll"}
    if binding["roleRef"]["name"] != role["metadata"]["name"] or binding["subjects"] != [subject] or pod.get("serviceAccountName") != name:
        yield "the job has not the account that may do that"
    if len(job["spec"]["schedule"].split()) != 5 or job["spec"]["schedule"].split()[2:] != ["*"] * 3:
        yield f"it does not look every day: {job['spec']['schedule']}"
    if job["spec"].get("concurrencyPolicy") != "Forbid" or not job["spec"].get("startingDeadlineSeconds"):
        yield "a run that hangs or is late hinders others"
    if not job["spec"]["jobTemplate"]["spec"].get("activeDeadlineSeconds"):
        yield "a run may hang for ever"
    if {one["name"]: one.get("value") for one in pod["containers"][0]["env"]} != {"SECRET": secret, "NAMESPACE": "atoll"}:
        yield "it looks at another secret"
    volumes = {one["name"]: one for one in pod["volumes"]}
    if (volumes["tmp"].get("emptyDir") or {}).get("medium") != "Memory":
        yield "the signing key is written to a disk"
    yield from token_for_minutes(volumes["api"]["projected"])


def token_for_minutes(projected):
    if projected.get("defaultMode") != 0o440:
        yield "others can read the token for the API server"
    sources = {kind: source for one in projected["sources"] for kind, source in one.items()}
    if sources.get("serviceAccountToken", {}).get("expirationSeconds", 0) != 600 or "configMap" not in sources:
        yield f"no token of minutes, or no authority for the API server: {sources}"


def bodies_pass(chart):
    for name in SERVICES:
        floor = 16 * MIB if name in ("store", "dispatch") else MIB
        if chart.settings(name).get("request_bytes_max", 0) <= floor:
            yield f"{name} refuses what the gateway lets through"
    for ingress in chart.kind("Ingress"):
        said = ingress["metadata"]["annotations"]
        if said.get("nginx.ingress.kubernetes.io/proxy-body-size") != "16m":
            yield "the ingress refuses blobs"
        if int(said.get("nginx.ingress.kubernetes.io/proxy-read-timeout", "60")) <= 120:
            yield "the ingress gives up answers that the gateway waits for"


def blobs_as_files(chart):
    conf, settings = chart.files_conf(), chart.settings("store")
    prefix = settings["store"].get("accel_prefix")
    if f"location {prefix} {{" not in conf or f"alias {settings['store']['root']}/;" not in conf:
        yield "nginx does not find what the store names"
    if "internal;" not in conf:
        yield "whoever reaches the store's pod reads blobs without a token"
    if "proxy_set_header X-Atoll-Gateway 1;" not in conf:
        yield "the store takes a blob into its memory"
    size = next((line.split()[1] for line in conf if line.startswith("client_max_body_size")), "1024k;")
    if not 16 * MIB < int(size.rstrip("k;")) * 1024 < settings["request_bytes_max"]:
        yield f"bodies of {size} stand neither above the gateway's bound nor below the store's"


def kafka_credentials(chart):
    for name in SERVICES:
        secret = chart.values["kafka"]["existingSecrets"].get(name) or chart.values["kafka"]["existingSecret"]
        pod = chart.deployments()[name]["spec"]["template"]["spec"]
        volumes = {one["name"]: one for one in pod["volumes"]}
        if volumes.get("kafka", {}).get("secret", {}).get("secretName", "") != secret:
            yield f"{name} has another's credentials for Kafka"
        mounts = {one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
        if (chart.settings(name).get("kafka_credentials_file") == "/credentials/kafka/client.properties") != bool(secret):
            yield f"{name} does not read the credentials for Kafka"
        if ("/credentials/kafka" in mounts) != bool(secret):
            yield f"{name} does not see the credentials for Kafka"


def data_stay(chart):
    for claim in chart.kind("PersistentVolumeClaim"):
        if (claim["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") != "keep":
            yield "the blobs go with the release"
    if chart.kind("StatefulSet"):
        yield "a StatefulSet's volumes cannot grow"


def as_compose_has_them(chart):
    asked = chart.values["monitoring"]
    rules = [one["spec"] for one in chart.kind("PrometheusRule")]
    alerts = yaml.safe_load((ROOT / "compose/observe/alerts.yaml").read_text())
    if rules != ([alerts] if asked["rules"]["enabled"] else []):
        yield "the rules differ from compose/observe/alerts.yaml"
    files = {f"atoll-{one.name}": json.loads(one.read_text()) for one in (ROOT / "compose/observe/dashboards").iterdir()}
    shown = {}
    for one in chart.kind("ConfigMap"):
        if "-dashboard-" in one["metadata"]["name"]:
            shown |= {key: json.loads(text) for key, text in one["data"].items()}
            if one["metadata"]["labels"].get("grafana_dashboard") != "1":
                yield f"Grafana does not take {one['metadata']['name']}"
    if shown != (files if asked["dashboards"]["enabled"] else {}):
        yield "the dashboards differ from compose/observe/dashboards"
    for monitor in chart.kind("ServiceMonitor"):
        if monitor["spec"].get("jobLabel") != "app.kubernetes.io/name":
            yield "the rules ask for the job atoll, and the targets have another"
        relabelings = monitor["spec"]["endpoints"][0].get("relabelings") or [{}]
        if relabelings[0].get("targetLabel") != "instance":
            yield "alerts name a pod's address"


def peers_of(chart, peers):
    """Components by name, "any" where there is no bound, all else as JSON."""
    if not peers:
        return {"any"}
    ours = {COMPONENT, "app.kubernetes.io/name", "app.kubernetes.io/instance"}
    names = set()
    for peer in peers:
        labels = (peer.get("podSelector") or {}).get("matchLabels") or {}
        names.add(labels[COMPONENT] if set(labels) == ours and set(peer) == {"podSelector"} else json.dumps(peer))
    return names


def edges_of(chart):
    """(from, to, port) of what is allowed, an edge at each end: "in" and "out"."""
    edges = set()
    for policy in chart.kind("NetworkPolicy"):
        spec = policy["spec"]
        own = spec["podSelector"]["matchLabels"].get(COMPONENT, "all")
        for rule in spec.get("ingress") or []:
            for port in rule["ports"]:
                edges |= {("in", peer, own, port["port"]) for peer in peers_of(chart, rule.get("from"))}
        for rule in spec.get("egress") or []:
            for port in rule["ports"]:
                edges |= {("out", own, peer, port["port"]) for peer in peers_of(chart, rule.get("to"))}
    return edges


def edges_wanted(chart):
    policy = chart.values["networkPolicy"]
    edges = {("out", "all", peer, 53) for peer in peers_of(chart, policy["dns"]["to"])}
    for name in SERVICES:
        edges |= {("in", "gateway", name, 8080), ("out", "gateway", name, 8080),
                  ("in", "test", name, 8080), ("out", "test", name, 8080)}
        edges |= {("in", json.dumps(peer), name, 8080) for peer in policy["metrics"]}
        for what in ("postgres", "kafka", *(["facilities", "public"] if name == "dispatch" else [])):
            edges |= {("out", name, peer, port) for peer in peers_of(chart, policy[what]["to"])
                      for port in policy[what]["ports"]}
    edges |= {("out", name, "gateway", 7400) for name in ("dispatch", "aggregation", "test")}
    clients = [json.dumps(peer) for peer in policy["clients"]]
    edges |= {("in", name, "gateway", 7400) for name in ([*clients, "dispatch", "aggregation", "test"] if clients else ["any"])}
    if chart.values["gateway"]["tls"]["existingSecret"]:
        edges.add(("in", "any", "gateway", 7443))
    if chart.values["credentials"]["renewal"]["enabled"]:
        edges |= {("out", "renewal", peer, port) for peer in peers_of(chart, policy["apiServer"]["to"])
                  for port in policy["apiServer"]["ports"]}
    return edges


def network(chart):
    selected = {}
    for policy in chart.kind("NetworkPolicy"):
        spec = policy["spec"]
        for way in spec.get("policyTypes") or []:
            selected.setdefault(spec["podSelector"]["matchLabels"].get(COMPONENT, "all"), set()).add(way)
        if not all(isinstance(spec.get(way) or [], list) for way in ("ingress", "egress")):
            yield f"{policy['metadata']['name']} has no list of rules"
            return
        if len(spec["podSelector"]["matchLabels"]) < 2:
            yield f"{policy['metadata']['name']} is for pods of others, too"
    for name in ("all", "gateway", *SERVICES):
        if selected.get(name) != {"Ingress", "Egress"}:
            yield f"{name} is open: {selected.get(name)}"
    for name in ("test", *(["renewal"] if chart.kind("CronJob") else [])):
        if selected.get(name) != {"Egress"}:
            yield f"{name} is open: {selected.get(name)}"
    more, less = edges_of(chart) - edges_wanted(chart), edges_wanted(chart) - edges_of(chart)
    if more or less:
        yield f"allowed and not wanted: {sorted(more)}; wanted and not allowed: {sorted(less)}"


# Which lines keep the promise, (file, beginning of the line). Each such line is taken out for itself.
POLICIES = {
    "a namespace with the restricted standard admits every pod": (restricted, [
        ("_helpers.tpl", "runAsNonRoot: true"), ("_helpers.tpl", "type: RuntimeDefault"),
        ("_helpers.tpl", "allowPrivilegeEscalation: false"), ("_helpers.tpl", "drop: [ALL]")]),
    "no container writes its root": (read_only, [("_helpers.tpl", "readOnlyRootFilesystem: true")]),
    "all run as the image's user": (user, [
        ("_helpers.tpl", "runAsUser:"), ("_helpers.tpl", "runAsGroup:"), ("_helpers.tpl", "fsGroup:")]),
    "a full volume is not walked": (volumes_not_walked, [("_helpers.tpl", "fsGroupChangePolicy:")]),
    "no pod but the renewal's has a service account's token": (no_api_token, [
        ("_helpers.tpl", "automountServiceAccountToken:"), ("renewal.yaml", "automountServiceAccountToken:")]),
    "the token is renewed, by a job that may do nothing else": (token_renewed, [
        ("renewal.yaml", "resourceNames:"), ("renewal.yaml", "verbs:"), ("renewal.yaml", "serviceAccountName:"), ("renewal.yaml", "concurrencyPolicy:"),
        ("renewal.yaml", "startingDeadlineSeconds:"), ("renewal.yaml", "activeDeadlineSeconds:"), ("renewal.yaml", "defaultMode: 0440"),
        ("renewal.yaml", "- {name: SECRET"), ("renewal.yaml", "- {name: NAMESPACE"), ("renewal.yaml", "emptyDir: {medium: Memory"),
        ("renewal.yaml", "- serviceAccountToken:"), ("renewal.yaml", "- configMap:")]),
    "no pod gets the services as variables": (no_service_links, [("_helpers.tpl", "enableServiceLinks:")]),
    "every container is looked at": (probes, [
        (file, f"{probe}:") for file in ("services.yaml", "gateway.yaml")
        for probe in ("startupProbe", "readinessProbe", "livenessProbe")]),
    "every container asks for what it needs and has a limit": (resources, [
        ("services.yaml", "resources: {{- toYaml"), ("gateway.yaml", "resources: {{- toYaml"),
        ("tests/ready.yaml", "requests:"), ("tests/ready.yaml", "limits:"), ("renewal.yaml", "requests:"), ("renewal.yaml", "limits:")]),
    "a drain takes one pod at a time": (drained_one_by_one, [("disruption.yaml", "maxUnavailable: 1")]),
    "an upgrade leaves no gap": (replaced_without_a_gap, [
        ("services.yaml", "type: Recreate"), ("services.yaml", "maxSurge: 1"), ("services.yaml", "maxUnavailable: 0"),
        ("gateway.yaml", "maxSurge: 1"), ("gateway.yaml", "maxUnavailable: 0"),
        ("services.yaml", "lifecycle:"), ("gateway.yaml", "lifecycle:")]),
    "requests wait for a service that is replaced": (requests_wait, [("gateway.yaml", "- --wait=60")]),
    "each client has its own limits": (own_limits, [("gateway.yaml", "- --trusted-proxies=")]),
    "changed settings count at once": (settings_restart, [("services.yaml", "checksum/config:")]),
    "each service sees its own keys alone": (only_its_keys, [
        ("services.yaml", "- {key: private.pem"), ("services.yaml", "- {key: aggregation.token"),
        ("services.yaml", "- {key: public.pem"), ("services.yaml", "defaultMode: 0440")]),
    "what is large passes": (bodies_pass, [
        ("_helpers.tpl", "request_bytes_max: 17039360"), ("_helpers.tpl", "request_bytes_max: 1310720"),
        ("../values.yaml", "nginx.ingress.kubernetes.io/proxy-body-size"),
        ("../values.yaml", "nginx.ingress.kubernetes.io/proxy-read-timeout")]),
    "blobs are sent as files, to those who may have them": (blobs_as_files, [
        ("../files.conf", "internal;"), ("../files.conf", "alias /srv/atoll/blobs/;"),
        ("../files.conf", "proxy_set_header X-Atoll-Gateway"), ("../files.conf", "client_max_body_size")]),
    "Kafka is spoken to as the secret says": (kafka_credentials, [
        ("_helpers.tpl", "kafka_credentials_file:"), ("services.yaml", "- {name: kafka, mountPath")]),
    "the blobs outlive the release and can grow": (data_stay, [("services.yaml", "helm.sh/resource-policy: keep")]),
    "rules and dashboards are those of compose": (as_compose_has_them, [
        ("monitoring.yaml", "jobLabel:"), ("monitoring.yaml", "- {sourceLabels:"), ("monitoring.yaml", "{{- toYaml $.Values.monitoring.dashboards.labels")]),
    "nothing passes the network but what is listed": (network, [
        ("network.yaml", "- Ingress"), ("network.yaml", "- Egress"), ("network.yaml", "- podSelector: "),
        ("network.yaml", "- ports: [{port: 53"), ("network.yaml", "- ports: [{port: 7443}]"),
        ("network.yaml", "to: [{podSelector:"), ("network.yaml", "to: {{- toYaml"), ("network.yaml", "{{- toYaml . | nindent 8 }}")]),
}


def merged(below, above):
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {key: merged(below.get(key), value) for key, value in above.items()}


def render(helm, chart, values):
    """Its error where it cannot be rendered."""
    result = subprocess.run([helm, "template", "one", chart, "--namespace", "atoll", "--kube-version", "1.34", "--values", values],
                            capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return next(line for line in result.stderr.splitlines() if line.startswith("Error"))
    own = yaml.safe_load((ROOT / "charts/atoll/values.yaml").read_text())
    objects = [one for one in yaml.load_all(result.stdout, LOADER) if one]
    return Rendered(objects, merged(own, yaml.safe_load(values.read_text())))


def sets():
    return sorted((ROOT / "charts/atoll/ci").glob("*.yaml"))


def check_all(helm):
    faults = []
    for values in sets():
        rendered = render(helm, ROOT / "charts/atoll", values)
        if isinstance(rendered, str):
            faults.append(f"{values.name}: {rendered}")
            continue
        for name, (check, _) in POLICIES.items():
            faults += [f"{values.name}: {name}: {complaint}" for complaint in check(rendered)]
    return faults


def notices(check, rendered, what, faults):
    if isinstance(rendered, str):
        faults.append(f"{what}: {rendered}")
        return True
    return any(check(rendered))


def prove(helm):
    """Takes the lines out one by one."""
    faults, count = [], 0
    with tempfile.TemporaryDirectory() as directory:
        chart = pathlib.Path(directory) / "atoll"
        shutil.copytree(ROOT / "charts/atoll", chart)
        for name, (check, places) in POLICIES.items():
            for file, beginning in places:
                path = chart / "templates" / file
                text = path.read_text()
                lines = text.splitlines(keepends=True)
                found = [i for i, line in enumerate(lines) if line.strip().startswith(beginning)]
                if not found:
                    faults.append(f"{name}: no line '{beginning}' in {file}")
                for i in found:
                    count += 1
                    path.write_text("".join(lines[:i] + lines[i + 1:]))
                    without = (render(helm, chart, values) for values in sets())
                    at = f"'{lines[i].strip()}', {file}:{i + 1}"
                    if not any(notices(check, one, f"{name}: not rendered without {at}", faults) for one in without):
                        faults.append(f"{name}: nobody notices that {at} is missing")
                path.write_text(text)
    print(f"  {len(POLICIES)} promises kept by {count} lines", file=sys.stderr)
    return faults


if __name__ == "__main__":
    found = check_all(sys.argv[1])
    if not found and "--proved" in sys.argv:
        found = prove(sys.argv[1])
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
