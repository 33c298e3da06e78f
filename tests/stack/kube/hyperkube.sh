#!/bin/bash
# hyperkube.sh OUT: leaves in OUT a real Kubernetes, built from Go modules alone: hyperkube (apiserver, controller-manager, etcd),
# hyperkubelet (kubelet, scheduler, proxy), and kubectl. What is there stays. k8s.io/kubernetes cannot be installed by `go install` for its
# replace lines; a module of one's own may have them. Eight CPU minutes the first time, one with Go's caches.
set -euo pipefail
mkdir -p "${1:?usage: hyperkube.sh OUT}"
out=$(realpath "$1") version=1.34.3 staging=v0.34.3
[ ! -x "$out/hyperkube" ] || [ ! -x "$out/hyperkubelet" ] || [ ! -x "$out/kubectl" ] || exit 0
mod=$(cd / && go mod download -json "k8s.io/kubernetes@v$version" | python3 -c 'import json, sys; print(json.load(sys.stdin)["GoMod"])')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
{
    printf 'module example.org/hyperkube\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$version"
    sed -n '/^replace (/,/^)/p' "$mod" | awk -v staging="$staging" '/=>/ {print "\t" $1 " => " $1 " " staging}'
    echo ')'
} >go.mod
# program NAME PART…: one program of several, chosen by its first argument. A part is "name import function".
program() {
    local name=$1 part
    shift
    mkdir "$name"
    {
        printf 'package main\n\nimport (\n\t"context"\n\t"os"\n\n\t"k8s.io/component-base/cli"\n'
        for part in "$@"; do
            read -r one import _ <<<"$part"
            printf '\t%s "%s"\n' "${one//-/}" "$import"
        done
        printf ')\n\nvar _ = context.Background\nvar _ = cli.Run\n\nfunc main() {\n\tpart := os.Args[1]\n\tos.Args = os.Args[1:]\n\tswitch part {\n'
        for part in "$@"; do
            read -r one _ call <<<"$part"
            printf '\tcase "%s":\n\t\t%s\n' "$one" "$call"
        done
        printf '\t}\n}\n'
    } >"$name/main.go"
}
program hyperkube 'etcd go.etcd.io/etcd/server/v3/etcdmain etcd.Main(os.Args)' \
    'apiserver k8s.io/kubernetes/cmd/kube-apiserver/app os.Exit(cli.Run(apiserver.NewAPIServerCommand()))' \
    'controller-manager k8s.io/kubernetes/cmd/kube-controller-manager/app os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))'
program hyperkubelet 'kubelet k8s.io/kubernetes/cmd/kubelet/app os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))' \
    'scheduler k8s.io/kubernetes/cmd/kube-scheduler/app os.Exit(cli.Run(scheduler.NewSchedulerCommand()))' \
    'proxy k8s.io/kubernetes/cmd/kube-proxy/app os.Exit(cli.Run(proxy.NewProxyCommand()))'
at=k8s.io/component-base/version
flags="-s -w -X $at.gitVersion=v$version -X $at.gitMajor=1 -X $at.gitMinor=34"
export GOFLAGS="${GOFLAGS-} -mod=mod"
# What fetches modules is tried again: a module proxy may be slow to answer.
for name in ./hyperkube ./hyperkubelet k8s.io/kubernetes/cmd/kubectl; do
    build=(nice -n 15 go build -ldflags "$flags" -o "$out/${name##*/}" "$name")
    [ -x "$out/${name##*/}" ] || "${build[@]}" || { sleep 10 && "${build[@]}"; }
done
